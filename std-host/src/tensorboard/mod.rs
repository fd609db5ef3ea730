//! What TensorBoard shows: summaries, traces, and what a device tells over a line.

pub mod monitor;
pub mod profiler;
pub mod summary;
