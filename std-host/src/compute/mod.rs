//! The host's CPU as a device, and the collective operations of replicas.

pub(crate) mod collective;
pub(crate) mod devices;
