//! Keras's `compile`, `fit`, `evaluate` and `predict`, and models that are known by name.

pub mod applications;
pub mod model;
pub mod models;
mod progress;
pub mod training;
