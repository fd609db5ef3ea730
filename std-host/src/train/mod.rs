//! Keras's `compile`, `fit`, `evaluate` and `predict`; named models.

pub mod applications;
pub mod model;
pub mod models;
mod progress;
pub mod training;
