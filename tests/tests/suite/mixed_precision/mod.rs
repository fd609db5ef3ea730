//! Mixed precision: dtype policies of layers, loss scaling, and training in 16 bits. `layers.rs` compares layers under policies with
//! Keras's.

mod kernels;
mod loss_scale;
mod policies;
mod training;
