//! The device's runtime: it reads, verifies and runs artifacts, saves checkpoints and sends telemetry. It never allocates.

pub(crate) mod arena;
pub(crate) mod check;
pub mod checkpoint;
pub(crate) mod exec;
mod load;
pub mod program;
pub mod slots;
pub mod telemetry;
pub mod verify;
