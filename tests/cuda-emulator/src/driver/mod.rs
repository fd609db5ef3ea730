//! The driver's functions, with the signatures that `libcuda` exports, and the state behind them.
//!
//! The driver is stricter than a GPU:
//!
//! - Device memory has addresses that no host pointer has. Allocations have gaps between them, and no address is used twice.
//! - Work on a stream waits until somebody synchronises with it. Without that, its results are never there.
//! - Page-locked memory is read when an upload runs. Other memory is copied when it is submitted, as the real driver does.
//! - Page-locked memory belongs to its context unless it is portable, and kernels use it only if it is mapped.
//! - Imported memory may not be used after the import was destroyed. A device uses another one's memory only after it has asked for that.
//! - Nothing waits for a stream when memory is freed or a module unloaded: work that still uses them is a fault.
//! - Nodes of a graph that do not depend on each other run in the reverse of the order in which they were added.
//! - Handles are never used twice, so a stale one is an error.
//! - The first fault of a device stays: each later call that needs the device returns it, until [`emulator_reset`].

mod api;
mod block;
mod configuration;
mod counts;
mod memory;
mod queue;
mod state;
mod status;
mod storage;
mod work;

pub use api::*;
pub use counts::Counts;
pub use state::Handle;
pub(crate) use state::{Emulator, emulator};
pub use status::Status;
pub(crate) use status::Stop;
pub(crate) use work::Work;
