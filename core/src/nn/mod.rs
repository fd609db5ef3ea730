//! What models are made of and trained with, in Keras's terms.

pub mod layers;
pub mod losses;
pub mod metrics;
pub mod optimizers;
pub mod schedules;
