//! Data for TensorBoard: summaries, traces, and the telemetry of devices.

pub mod monitor;
pub mod profiler;
pub mod summary;
