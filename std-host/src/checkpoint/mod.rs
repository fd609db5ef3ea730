//! TensorFlow's checkpoints.

mod state;
mod text;

pub use state::{State, latest_checkpoint};
