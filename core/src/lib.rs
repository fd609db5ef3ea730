//! The `no_std` heart of gradlet: tensors, autodiff, traced functions, and a heap-free executor that trains.
//!
//! Without features, this crate runs exported programs: [`Program`] checks an artifact's bytes, [`Session`] runs its
//! signatures, training steps included, in memory that the caller gives. With `alloc`, it also builds them.
//!
//! A folder imports only from those before it in this file; `ARCHITECTURE.md` has the map.

#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;
/// Derived code names this crate from outside.
#[cfg(feature = "alloc")]
extern crate self as gradlet_core;

#[cfg(target_endian = "big")]
compile_error!("gradlet reads its formats in place, and they are little-endian");

// Errors, element types, shapes, views of bytes, random numbers, the records of an artifact, the definition of an op.
mod base;

// Tensors, variables, devices and scopes; and graphs, whose tensors are not computed yet.
#[cfg(feature = "alloc")]
pub mod tensor;

// One op, one file: shape rule, kernels, gradient, the method of `Tensor`. The catalogue gives each its number.
pub mod ops;

// The device's runtime, linked beside the kernels: reader, verifier, executor, checkpoints, telemetry. It never allocates.
mod runtime;

// Scopes that compute eagerly, record a graph or observe; control flow, TensorArray and autograph.
#[cfg(feature = "alloc")]
mod trace;

// The tape: it records over any scope, and emits the backward pass into the same scope.
#[cfg(feature = "alloc")]
pub mod autodiff;

// From a graph to a plan, one stage after the other: `inline`, `optimize`, `plan`.
#[cfg(feature = "alloc")]
mod compile;

// The host's executable: it runs a plan in buffers of its own.
#[cfg(feature = "alloc")]
mod host;

// `Function`: traced once per signature, then compiled.
#[cfg(feature = "alloc")]
pub mod function;

// Artifacts: flat files of functions and variables, written and described.
#[cfg(feature = "alloc")]
pub mod artifact;

// Layers, losses, metrics, optimizers and schedules, with Keras's names.
#[cfg(feature = "alloc")]
mod nn;

// TensorFlow 1's graphs and sessions.
#[cfg(feature = "alloc")]
pub mod compat;

pub use base::dtype::{Bool, DType, Element};
pub use base::error::{Error, Result};
pub use base::op::Kernel;
pub use base::shape::{MAX_RANK, Shape, TensorType};
pub use base::view::{TensorView, TensorViewMut};
pub use base::{dtype, error, format, op, random, shape, view};
pub use runtime::arena::Aligned;
pub use runtime::checkpoint::{Contents, FlatCheckpoint};
pub use runtime::exec::{Profile, Session};
pub use runtime::program::{Program, SignatureId};
pub use runtime::slots::Slots;
pub use runtime::telemetry::Telemetry;
pub use runtime::{checkpoint, program, slots, telemetry, verify};
#[cfg(feature = "alloc")]
pub use {
    artifact::{Artifact, describe},
    autodiff::{Record, Tape, sources},
    base::sync,
    function::{ConcreteFunction, Function, TensorSpec},
    nn::{layers, losses, metrics, optimizers, schedules},
    ops::print::Print,
    ops::summary::Summarize,
    tensor::Tensor,
    tensor::device::Device,
    tensor::scope::{Scope, custom_gradient},
    tensor::variable::{FirstValue, Variable},
    tensor::{device, graph, nested, profile, scope, structure, variable},
    trace::eager::Eager,
    trace::tensor_array::TensorArray,
    trace::{autograph, control, eager, observe, scan, tensor_array, tracing},
};
