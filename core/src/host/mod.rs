//! A plan run on a host, in buffers of its own: what a compiled `Function` calls.

pub(crate) mod control_step;
pub(crate) mod executable;
pub(crate) mod fused_group;
pub(crate) mod kernel_step;
