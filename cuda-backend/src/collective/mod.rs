//! Collective operations in the memory of GPUs: by kernels among the devices of one GPU, by NCCL among several GPUs.
//!
//! One thread puts the work of all devices on their streams, while the threads of the replicas wait for it. Nothing waits for the GPUs.

mod kernels;
mod nccl;

pub use nccl::Nccl;

use crate::device::Part;
use gradlet_core::replicas::reduction;
use gradlet_core::{Error, Result};
use std::sync::Arc;

/// The parts of all replicas in a collective operation, in the order of the replicas.
pub struct Parts<'p> {
    parts: Vec<&'p Part>,
    kind: Kind,
}

/// How a collective operation combines tensors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sum,
    Mean,
    First,
}

/// How the devices of replicas are spread over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All devices are logical devices of the same GPU.
    OneGpu,
    /// Each device has a GPU of its own.
    Apart,
    /// Some devices share a GPU, and there are several GPUs.
    Mixed,
}

impl<'p> Parts<'p> {
    /// Joins the parts of all replicas. Returns `None` if they are not parts of the same operation, with tensors of the same types.
    ///
    /// Fails if the operation is none of [`reduction`].
    pub fn new(parts: Vec<&'p Part>) -> Result<Option<Parts<'p>>> {
        let Some((first, others)) = parts.split_first() else { return Ok(None) };
        let kind = match *first.attributes() {
            [reduction::SUM] => Kind::Sum,
            [reduction::MEAN] => Kind::Mean,
            [reduction::FIRST] => Kind::First,
            _ => return Err(Error::Internal),
        };
        Ok(others.iter().all(|part| part.fits(first)).then_some(Parts { parts, kind }))
    }

    /// Returns how the devices are spread over GPUs.
    pub fn spread(&self) -> Spread {
        let context = |part: &Part| Arc::as_ptr(part.device.stream().context());
        let mut contexts: Vec<_> = self.parts.iter().map(|part| context(part)).collect();
        contexts.sort_unstable();
        contexts.dedup();
        match contexts.len() {
            1 => Spread::OneGpu,
            gpus if gpus == self.parts.len() => Spread::Apart,
            _ => Spread::Mixed,
        }
    }

    /// Combines the tensors by kernels, in the order of the replicas. Returns false if the devices do not have the same GPU, or are too
    /// many for a kernel. When it returns, the work is on the streams.
    pub fn combine(&self) -> Result<bool> {
        if self.spread() == Spread::OneGpu { kernels::combine(&self.parts, self.kind) } else { Ok(false) }
    }

    /// Returns the devices with the numbers of their replicas, for errors.
    fn names(&self) -> String {
        let name = |(rank, part): (usize, &&Part)| format!("replica {rank} on {}", part.device.name());
        self.parts.iter().enumerate().map(name).collect::<Vec<_>>().join(", ")
    }
}
