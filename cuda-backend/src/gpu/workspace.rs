//! The workspace of a device: memory for partial sums, taken when the first kernel needs it.

use crate::gpu::Context;
use crate::gpu::region::Allocation;
use gradlet_core::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The workspace of a device.
pub(crate) struct Workspace {
    context: Arc<Context>,
    /// Size in bytes: 0 if there is none, or after the driver has refused the memory.
    size: AtomicU64,
    memory: OnceLock<Allocation>,
}

impl Workspace {
    /// Creates a workspace of `size` bytes, without its memory.
    pub(crate) fn new(context: &Arc<Context>, size: u64) -> Workspace {
        Workspace { context: context.clone(), size: AtomicU64::new(size), memory: OnceLock::new() }
    }

    /// Returns the size in bytes that kernels may use.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Returns the address, or 0 before the memory is there.
    pub(crate) fn address(&self) -> u64 {
        self.memory.get().map_or(0, Allocation::address)
    }

    /// Takes the memory, if that has not happened yet. Returns false if the GPU has too little; the size is 0 from then on.
    pub(crate) fn is_there(&self) -> Result<bool> {
        if self.memory.get().is_some() {
            return Ok(true);
        }
        match Allocation::new(&self.context, self.size()) {
            // Of two threads that arrive here together, one gives its memory back.
            Ok(memory) => Ok(self.memory.set(memory).is_ok() || self.memory.get().is_some()),
            Err(error) => {
                self.size.store(0, Ordering::Relaxed);
                // A GPU that is lost says nothing of its memory either.
                self.context.available().map(|_| false).map_err(|_| error)
            }
        }
    }
}
