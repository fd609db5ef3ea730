//! The executable of a compiled `Function`: it runs a plan on a host, in its own buffers.

pub(crate) mod control_step;
pub(crate) mod divided;
pub(crate) mod executable;
pub(crate) mod fused_group;
pub(crate) mod kernel_step;
pub(crate) mod launch_step;
pub(crate) mod remote_builder;
