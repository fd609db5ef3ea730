//! The host's CPU as a device, with fast kernels that use all of its cores.

pub(crate) mod collective;
pub(crate) mod devices;
mod kernels;
mod simd;
pub(crate) mod team;
