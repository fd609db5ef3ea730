//! The exported functions. Their names, signatures and results are the driver's; those that begin with `emulator_` are for tests.

// The documentation of the driver states for each function what its caller guarantees.
#![allow(clippy::missing_safety_doc, non_snake_case)]

mod context;
mod control;
mod copy;
mod device;
mod error;
mod event;
mod external;
mod graph;
mod launch;
mod memory;
mod module;
mod node;
mod peer;
mod stream;

pub use context::*;
pub use control::*;
pub use copy::*;
pub use device::*;
pub use error::*;
pub use event::*;
pub use external::*;
pub use graph::*;
pub use launch::*;
pub use memory::*;
pub use module::*;
pub use node::*;
pub use peer::*;
pub use stream::*;
