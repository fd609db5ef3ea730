//! The `no_std` core of gradlet: tensors, gradients, traced functions, and a heap-free executor that trains.
//!
//! Without features, this crate runs exported programs on a microcontroller: [`Program`] verifies the bytes of an artifact, [`Session`]
//! runs its signatures, training steps included, in memory that the caller provides. With the feature `alloc`, it also traces, compiles
//! and exports them. The feature `defmt` implements `defmt::Format` for errors and small types. Programs on a host use the crate
//! `gradlet`, which re-exports everything here.
//!
//! | group | contents |
//! |---|---|
//! | [`tensor`], [`device`] | tensors, variables, element types, shapes; where their memory is |
//! | [`scope`] | eager execution, and observers of what runs |
//! | [`autodiff`] | the gradient tape |
//! | [`function`], [`control`], [`autograph`] | traced functions, branches, loops, `TensorArray` |
//! | [`layers`], [`losses`], [`metrics`], [`optimizers`] | neural networks, with Keras's names |
//! | [`ops`], [`custom_op`] | every op with its kernels; how to define another one |
//! | [`quantize`] | int8 from a trained function of floats |
//! | [`artifact`] | the flat file of an exported program |
//! | [`runtime`] | what a firmware links: reader, verifier, executor, flat checkpoints, flash slots, telemetry |
//! | [`compat`] | graphs and sessions of TensorFlow 1 |

#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

// A folder imports only from those declared before it; `ARCHITECTURE.md` has the map.

#[cfg(feature = "alloc")]
extern crate alloc;
/// Derived code names this crate from outside.
#[cfg(feature = "alloc")]
extern crate self as gradlet_core;

#[cfg(target_endian = "big")]
compile_error!("gradlet reads its formats in place, and they are little-endian");

// Errors, element types, shapes, views of bytes, random numbers, the records of an artifact, the definition of an op.
mod base;

// Tensors, variables, devices and scopes; graphs, whose tensors are not computed yet.
pub mod tensor;

// One op, one file: shape rule, kernels, gradient, the method of `Tensor`. The catalogue gives each its number.
pub mod ops;

// The device's runtime, linked beside the kernels: reader, verifier, executor, checkpoints, telemetry. It never allocates.
pub mod runtime;

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

// Post-training quantization: from a function of floats to one of int8.
#[cfg(feature = "alloc")]
pub mod quantize;

// Artifacts: flat files of functions and variables, written and described.
#[cfg(feature = "alloc")]
pub mod artifact;

// Layers, losses, metrics and optimizers, with Keras's names.
#[cfg(feature = "alloc")]
mod nn;

// TensorFlow 1's graphs and sessions.
#[cfg(feature = "alloc")]
pub mod compat;

/// Errors: the one type of all, and the parts of an artifact that an error names.
pub mod error {
    #[cfg(feature = "alloc")]
    pub use crate::base::error::OutOfMemory;
    pub use crate::base::error::{Error, Result, Rule, Section};
}

/// Reproducible random numbers: the Philox generator of TensorFlow.
pub mod random {
    pub use crate::base::random::Stream;
}

/// Devices: their memory, and what computes in it.
#[cfg(feature = "alloc")]
pub mod device {
    pub use crate::tensor::device::blocks::Blocks;
    pub use crate::tensor::device::remote::{Fuses, Launch, Member, Placed, Recorded, Refused, Remote, Slot, Source, Step, StepOp};
    pub use crate::tensor::device::{AlignedBytes, Backend, Cpu, Device, ExternalMemory, Imported, MemoryInfo, Now, Placement};
    pub use crate::tensor::profile::{Activity, Copied, MemoryChange, NamedOp, Ops, Profiler, Transfer};
}

/// Scopes: where ops run. [`Eager`] computes them, a tape also records them, a trace only records them.
#[cfg(feature = "alloc")]
pub mod scope {
    pub use crate::tensor::scope::{DeviceScope, NameScope, Scope, ScopeHandle};
    pub use crate::trace::eager::Eager;
    pub use crate::trace::observe::{Finite, Observer, observed};
}

/// Replicas of a program on several devices, for the author of a strategy.
#[cfg(feature = "alloc")]
pub mod replicas {
    pub use crate::tensor::replicas::{Replicas, Role, VariableAggregation, VariableSynchronization, reduction};
}

/// Branches and loops over tensors, and the arrays that loops write.
#[cfg(feature = "alloc")]
pub mod control {
    pub use crate::trace::control::{WhileOptions, cond, switch_case, while_loop};
    pub use crate::trace::scan::{ScanOptions, foldl, map_fn, scan, unrolls};
    pub use crate::trace::tensor_array::{At, TensorArray};
}

/// The definition of an op: for ops that a user's crate adds, with kernels and a gradient of its own.
pub mod custom_op {
    pub use crate::base::op::{Call, Kernel, MAX_INPUTS, MAX_OUTPUTS, OpCode, OpDef, ShapeRule, Slice, read_attributes};
    pub use crate::ops::shared::broadcast;
    #[cfg(feature = "alloc")]
    pub use crate::tensor::scope::{Backward, CustomRule, Forward, Gradient, InputGradients, Keeps, Op, Outputs, Refusal};
}

/// Everyday names, for `use gradlet_core::prelude::*`.
#[cfg(feature = "alloc")]
pub mod prelude {
    #[doc(no_inline)]
    pub use crate::autodiff::Differentiate;
    #[doc(no_inline)]
    pub use crate::layers::{Layer, Module};
    #[doc(no_inline)]
    pub use crate::losses::Loss;
    #[doc(no_inline)]
    pub use crate::metrics::Metric;
    #[doc(no_inline)]
    pub use crate::optimizers::Optimizer;
    #[doc(no_inline)]
    pub use crate::{
        Artifact, DType, Device, Eager, Error, Function, Print, Result, Scope, Shape, Summarize, Tensor, TensorArray, TensorSpec,
        TensorType, Variable,
    };
}

/// Locks and shared pointers, which the crate `gradlet-cpu` also uses. They may change in any release.
#[cfg(feature = "alloc")]
#[doc(hidden)]
pub mod internal {
    pub use crate::base::sync;
}

#[doc(no_inline)]
pub use custom_op::Kernel;
#[doc(no_inline)]
pub use error::{Error, Result};
#[doc(no_inline)]
pub use runtime::{Program, Session};
#[doc(no_inline)]
pub use tensor::{DType, Quantization, Shape, TensorType};
#[cfg(feature = "alloc")]
#[doc(no_inline)]
pub use {
    artifact::Artifact,
    autodiff::Differentiate,
    control::TensorArray,
    device::Device,
    function::{Function, TensorSpec},
    ops::{print::Print, summary::Summarize},
    scope::{Eager, Scope},
    tensor::{AffineQuantization, DTypePolicy, Tensor, Variable},
};
#[cfg(feature = "alloc")]
#[doc(inline)]
pub use {
    nn::{layers, losses, metrics, optimizers},
    trace::autograph,
};

/// Compiles the README's program.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
