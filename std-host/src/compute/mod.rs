//! The devices of the host's CPU, and the collective operations of replicas.

pub(crate) mod collective;
pub(crate) mod devices;
