//! NVIDIA GPUs as devices of gradlet. The crate needs no CUDA toolkit, neither when it is built nor when it runs: the driver compiles the
//! kernels, which are stored here as PTX.
//!
//! The driver is a C library, so every call of it is `unsafe`. This crate keeps these calls in `driver/`, `gpu/` and `device/`, behind
//! functions that are safe.
//!
//! Programs use it by the feature `cuda` of the crate `gradlet`, whose `gradlet::config` then lists the GPUs.
//!
//! ```no_run
//! use gradlet_core::Tensor;
//! use gradlet_cuda::{Driver, Options};
//! let driver = Driver::load()?;
//! for gpu in driver.gpus()? {
//!     println!("{gpu:?}");
//! }
//! let device = driver.gpus()?[0].create("GPU:0", &Options::default())?;
//! let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0], &[3])?;
//! assert_eq!(x.mul(&x)?.to_vec::<f32>()?, [1.0, 4.0, 9.0]);
//! # Ok::<(), gradlet_core::Error>(())
//! ```

#![allow(unsafe_code)]

// A folder imports only from those declared before it; `ARCHITECTURE.md` has the map.

// The driver, loaded at run time.
mod driver;

// Kernels: stored ones, and those that are written at run time.
mod ptx;

// From an op to launches of kernels.
mod lower;

// GPUs: contexts, compiled kernels, memory, streams.
mod gpu;

// The device.
mod device;

// Collective operations between devices.
mod collective;

pub use collective::{Nccl, Parts, Spread};
pub use device::{Combine, Options, Part};
pub use driver::Driver;
pub use gpu::Gpu;
pub use gpu::foreign::External;
