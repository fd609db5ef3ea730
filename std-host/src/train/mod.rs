//! Training: Keras's `compile`, `fit`, `evaluate` and `predict` for any layer, with callbacks. [`classifier`] creates a compiled
//! classifier in one call.

#[doc(hidden)]
pub mod applications;
pub(crate) mod model;
pub(crate) mod models;
mod progress;
pub(crate) mod training;

pub use model::{Arrays, Batch, Callback, Compile, Evaluate, Fit, History, Inputs, Logs, Model, Order, Pass, Source, callbacks};
pub use progress::Verbose;
pub use training::{Step, classifier, step};
