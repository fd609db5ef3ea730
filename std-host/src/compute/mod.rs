//! The host's CPU as a device: fast kernels, spread over its cores.

pub(crate) mod devices;
mod kernels;
mod team;
