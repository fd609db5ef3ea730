//! The runtime of a device: it reads, verifies and runs artifacts, saves checkpoints and sends telemetry. It never allocates.

mod access;
pub(crate) mod arena;
pub(crate) mod check;
pub mod checkpoint;
pub(crate) mod exec;
mod finite;
mod load;
pub mod program;
mod scales;
pub(crate) mod session;
pub mod slots;
pub mod telemetry;
pub(crate) mod verify;

pub use crate::base::format;
pub use crate::base::op::Kernel;
pub use access::TensorId;
pub use arena::Aligned;
pub use exec::Profile;
pub use load::Loading;
pub use program::{Program, SignatureId};
pub use session::Session;
pub use slots::{Slot, Slots};
pub use telemetry::Telemetry;
/// The traits of a UART and of flash, in the versions that gradlet takes.
pub use {embedded_io, embedded_storage};
