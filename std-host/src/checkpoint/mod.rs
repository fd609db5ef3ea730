//! TensorFlow's checkpoints.

pub mod bundle;
mod state;
mod text;

pub use state::{State, latest_checkpoint};
