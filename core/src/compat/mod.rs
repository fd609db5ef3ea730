//! APIs of earlier TensorFlow versions.

pub mod v1;
