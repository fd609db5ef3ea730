//! Kernels of gradlet's int8 ops for Arm processors with Helium (the M-profile vector extension): Cortex-M52, M55 and M85.
//!
//! A firmware names these kernels in its list instead of core's. The artifact is the same, and so are the bits of the results.
//! `gradlet import --cpu cortex-m55` writes such a list.
//!
//! The kernels are functions in assembly, with `unsafe` code around them, because their gain is large: image classification with
//! MobileNet takes a fifth of the instructions of the portable kernels. Rust has no intrinsics for Helium, and the compiler turns loops
//! into vector code only at an `opt-level` of 2 or 3. These kernels are as fast at `s`.
//!
//! Link this crate only into firmware for a processor with Helium. The name of the compiler's target does not tell: every target of a
//! Cortex-M (`thumb…`) gets the code, and a Cortex-M4 or M33 stops at it with a usage fault. Targets of a Cortex-A or R do not build. The
//! firmware must have enabled the coprocessors 10 and 11, as `cortex-m-rt` does for targets that end with `eabihf`. The compiler needs no
//! flag.
//! For other targets, such as a host, the modules are those of `gradlet-core`.

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
mod pairs;
#[cfg(all(target_arch = "arm", target_os = "none"))]
pub mod quantized_add;
#[cfg(all(target_arch = "arm", target_os = "none"))]
pub mod quantized_matmul;
#[cfg(all(target_arch = "arm", target_os = "none"))]
pub mod quantized_mul;
#[cfg(all(target_arch = "arm", target_os = "none"))]
pub mod quantized_squared_difference;

#[cfg(not(all(target_arch = "arm", target_os = "none")))]
pub use gradlet_core::ops::{
    packed_conv2d, packed_dense, packed_depthwise_conv2d, quantized_add, quantized_matmul, quantized_mul, quantized_squared_difference,
};

/// The kernels of this crate, for a firmware that has all kernels. They come before those of `gradlet-core`.
pub static KERNELS: &[&gradlet_core::Kernel] = &[
    &packed_conv2d::I8,
    &packed_dense::I8,
    &packed_depthwise_conv2d::I8,
    &quantized_add::I8,
    &quantized_matmul::I8,
    &quantized_mul::I8,
    &quantized_squared_difference::I8,
];
