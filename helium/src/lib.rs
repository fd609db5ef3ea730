//! Kernels of gradlet's packed int8 ops for Arm processors with Helium (the M-profile vector extension): Cortex-M52, M55 and M85.
//!
//! A firmware names these kernels in its list instead of core's. The artifact is the same, and so are the bits of the results.
//! `gradlet import --cpu cortex-m55` writes such a list.
//!
//! The kernels are functions in assembly, with `unsafe` code around them, because their gain is large: image classification with
//! MobileNet takes a fifth of the instructions of the portable kernels. Rust has no intrinsics for Helium, and the compiler turns loops
//! into vector code only at an `opt-level` of 2 or 3. These kernels are as fast at every level.
//!
//! Link this crate only into firmware for a processor with Helium. The compiler's name of the target does not tell: all processors
//! without an operating system and with Arm's instructions get the code, and a Cortex-M33 or M4 stops at it with a usage fault. For other
//! targets, such as a host, the modules are those of `gradlet-core`.

#![no_std]

#[cfg(all(target_arch = "arm", target_os = "none"))]
mod assembly;
#[cfg(all(target_arch = "arm", target_os = "none"))]
mod bytes;
#[cfg(all(target_arch = "arm", target_os = "none"))]
mod layout;
#[cfg(all(target_arch = "arm", target_os = "none"))]
pub mod packed_conv2d;
#[cfg(all(target_arch = "arm", target_os = "none"))]
pub mod packed_dense;
#[cfg(all(target_arch = "arm", target_os = "none"))]
pub mod packed_depthwise_conv2d;
#[cfg(all(target_arch = "arm", target_os = "none"))]
pub mod quantized_add;

#[cfg(not(all(target_arch = "arm", target_os = "none")))]
pub use gradlet_core::ops::{packed_conv2d, packed_dense, packed_depthwise_conv2d, quantized_add};

/// The kernels of this crate, for a firmware that has all kernels. They come before those of `gradlet-core`.
pub static KERNELS: &[&gradlet_core::Kernel] = &[&packed_conv2d::I8, &packed_dense::I8, &packed_depthwise_conv2d::I8, &quantized_add::I8];
