//! The `no_std` heart of gradlet: tensors, autodiff, traced functions, and a heap-free executor that trains.
//!
//! Without features, this crate runs exported programs: [`Program`] checks an artifact's bytes, [`Session`] runs its
//! signatures, training steps included, in memory that the caller gives. With `alloc`, it also builds them.
//!
//! The modules stand on floors and import only from their own floor or from below; `ARCHITECTURE.md` has the map.

#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;
/// Derived code names this crate from outside.
#[cfg(feature = "alloc")]
extern crate self as gradlet_core;

#[cfg(target_endian = "big")]
compile_error!("gradlet reads its formats in place, and they are little-endian");

pub mod checkpoint;
pub mod dtype;
pub mod error;
pub mod format;
pub mod op;
pub mod ops;
pub mod program;
pub mod random;
pub mod shape;
pub mod slots;
pub mod telemetry;
pub mod verify;
pub mod view;

#[cfg(feature = "alloc")]
pub mod artifact;
#[cfg(feature = "alloc")]
pub mod autodiff;
#[cfg(feature = "alloc")]
pub mod autograph;
#[cfg(feature = "alloc")]
pub mod bodies;
#[cfg(feature = "alloc")]
mod branches;
#[cfg(feature = "alloc")]
pub mod compat;
#[cfg(feature = "alloc")]
pub mod control;
#[cfg(feature = "alloc")]
pub mod describe;
#[cfg(feature = "alloc")]
pub mod device;
#[cfg(feature = "alloc")]
mod display;
#[cfg(feature = "alloc")]
pub mod eager;
#[cfg(feature = "alloc")]
mod executable;
#[cfg(feature = "alloc")]
pub mod function;
#[cfg(feature = "alloc")]
pub mod fuse;
#[cfg(feature = "alloc")]
pub mod graph;
#[cfg(feature = "alloc")]
mod group;
#[cfg(feature = "alloc")]
pub mod layers;
#[cfg(feature = "alloc")]
mod layout;
#[cfg(feature = "alloc")]
pub mod losses;
#[cfg(feature = "alloc")]
pub mod metrics;
#[cfg(feature = "alloc")]
pub mod names;
#[cfg(feature = "alloc")]
pub mod nested;
#[cfg(feature = "alloc")]
pub mod observe;
#[cfg(feature = "alloc")]
pub mod optimize;
#[cfg(feature = "alloc")]
pub mod optimizers;
#[cfg(feature = "alloc")]
pub mod plan;
#[cfg(feature = "alloc")]
pub mod profile;
#[cfg(feature = "alloc")]
mod prune;
#[cfg(feature = "alloc")]
mod replay;
#[cfg(feature = "alloc")]
mod rewind;
#[cfg(feature = "alloc")]
pub mod scan;
#[cfg(feature = "alloc")]
pub mod schedules;
#[cfg(feature = "alloc")]
pub mod scope;
#[cfg(feature = "alloc")]
mod signatures;
#[cfg(feature = "alloc")]
pub mod sources;
#[cfg(feature = "alloc")]
mod steps;
#[cfg(feature = "alloc")]
pub mod structure;
#[cfg(feature = "alloc")]
pub mod sync;
#[cfg(feature = "alloc")]
pub mod tensor;
#[cfg(feature = "alloc")]
pub mod tensor_array;
#[cfg(feature = "alloc")]
pub mod tracing;
#[cfg(feature = "alloc")]
pub mod variable;

mod arena;
mod check;
mod exec;

pub use arena::Aligned;
pub use checkpoint::{Contents, FlatCheckpoint};
pub use dtype::{Bool, DType, Element};
pub use error::{Error, Result};
pub use exec::{Profile, Session};
pub use op::Kernel;
pub use program::{Program, SignatureId};
pub use shape::{MAX_RANK, Shape, TensorType};
pub use slots::Slots;
pub use telemetry::Telemetry;
pub use view::{TensorView, TensorViewMut};
#[cfg(feature = "alloc")]
pub use {
    artifact::Artifact,
    autodiff::{Record, Tape},
    device::Device,
    eager::Eager,
    function::{ConcreteFunction, Function, TensorSpec},
    ops::print::Print,
    ops::summary::Summarize,
    scope::{Scope, custom_gradient},
    tensor::Tensor,
    tensor_array::TensorArray,
    variable::{FirstValue, Variable},
};
