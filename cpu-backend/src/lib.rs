//! The host's CPU as a device of gradlet: kernels with its vector instructions, spread over its cores.
//!
//! `simd/` and `team.rs` have `unsafe` code: the intrinsics of the CPU, and work that helper threads borrow from its caller. Their first
//! lines give the reasons.
//!
//! Programs use it as `gradlet::cpu()` of the crate `gradlet`, which adds the portable kernels and those of replicas. A program's own
//! device needs the fast kernels, the portable ones for all other cases, and threads:
//!
//! ```
//! use gradlet_core::device::Cpu;
//! use gradlet_core::{Device, Tensor, ops};
//! use gradlet_cpu::{Host, Threads};
//! let kernels: Vec<_> = gradlet_cpu::kernels().chain(ops::KERNELS.iter().copied()).collect();
//! let device = Device::new(Host::new(Cpu::new("CPU:0", kernels.leak()), Threads::All));
//! let x = Tensor::full(&device, 0.5f32, &[64, 64])?;
//! assert_eq!(x.matmul(&x)?.to_vec::<f32>()?, [16.0; 64 * 64]);
//! # Ok::<(), gradlet_core::Error>(())
//! ```

// A folder imports only from those declared before it; `ARCHITECTURE.md` has the map.

// Threads that share the work of a kernel.
mod team;

// Vectors of numbers, for each instruction set.
mod simd;

// Kernels: for each family of ops one file or folder.
mod kernels;

// The device.
mod host;

pub use host::{Host, Threads};
pub use kernels::kernels;
pub use team::{Team, threads};
