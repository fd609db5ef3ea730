//! What a firmware links beside the kernels: it reads, verifies and runs artifacts, and keeps what was learnt. Nothing here allocates.

pub(crate) mod arena;
pub(crate) mod check;
pub mod checkpoint;
pub(crate) mod exec;
mod load;
pub mod program;
pub mod slots;
pub mod telemetry;
pub mod verify;
