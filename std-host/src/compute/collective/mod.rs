//! Collective operations of replicas: the op that adds a tensor over the replicas, and the place where their threads meet.

pub(crate) mod all_reduce;
#[cfg(feature = "cuda")]
pub(crate) mod gpus;
pub(crate) mod hub;
mod loan;
mod sum;
