//! Collective operations of replicas: the op that adds a tensor over the replicas, and the place where their threads meet.

pub(crate) mod all_reduce;
pub(crate) mod hub;
mod loan;
mod sum;
