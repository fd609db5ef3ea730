//! Code that several ops' kernels share.

pub mod broadcast;
pub(in crate::ops) mod contraction;
pub(in crate::ops) mod depthwise;
pub(in crate::ops) mod elementwise;
pub(in crate::ops) mod fixed_point;
pub(in crate::ops) mod indices;
pub(in crate::ops) mod lanes;
pub(in crate::ops) mod packed;
pub(in crate::ops) mod pooling;
pub(in crate::ops) mod quantized;
pub(in crate::ops) mod reduce;
pub(in crate::ops) mod runs;
pub(in crate::ops) mod scan;
pub(in crate::ops) mod short_functions;
pub(in crate::ops) mod stages;
#[cfg(test)]
pub(in crate::ops) mod testing;
pub(in crate::ops) mod window;
pub(in crate::ops) mod winners;
