//! gradlet on the host: datasets, file formats, training, export, and the `gradlet` command.
//!
//! Everything of [`gradlet_core`] is here too, so a program on the host needs this crate only.
//!
//! A folder imports only from those before it in this file; `ARCHITECTURE.md` has the map.

// Files that are written whole or not at all, and errors that name a file and a place in it.
mod files;

// The host's CPU as a device: fast kernels, spread over its cores.
mod compute;

// Values without a type in core: strings, sparse and ragged tensors, arrays of `ndarray`.
mod values;

// Foreign formats: TensorFlow's messages and records, IDX, NumPy, safetensors.
mod formats;

// From files to batches: `Dataset`, known sets, images, lines and CSV.
pub mod data;

// TensorFlow's checkpoints: named objects, saved and restored.
pub mod checkpoint;

// Data for TensorBoard: summaries, traces, and the telemetry of devices.
mod tensorboard;

// Keras's `compile`, `fit`, `evaluate` and `predict`; named models.
mod train;

// Artifacts on the host: exported, loaded, inspected, prepared for firmware.
pub mod artifact;

/// Layers: what models are made of. They have Keras's names, defaults and weight layouts.
pub mod layers {
    #[doc(inline)]
    pub use gradlet_core::layers::*;
    // The trait comes from the line above; code derived by this one names `gradlet`.
    pub use gradlet_derive::HostModule as Module;
}
/// Rust's own `if`, `while` and `for` where tensors decide.
pub mod autograph {
    #[doc(inline)]
    pub use gradlet_core::autograph::*;
    // The attribute comes from the line above; code made by this one names `gradlet`.
    pub use gradlet_derive::autograph_in_host as autograph;
}

pub use artifact::loaded::{Loaded, load};
pub use artifact::{export, firmware, inspect, loaded};
pub use compute::devices::{cpu, portable_cpu};
pub use data::dataset::Dataset;
pub use data::digits::Digits;
pub use data::{datasets, digits, image, io};
pub use files::{FileError, FileResult, WholeFile, writable, write_whole};
pub use formats::{example, idx, npy, proto, raw, tensor_proto, tfrecord, weights};
/// Flat checkpoints, of an artifact's variables: what a device writes.
#[doc(inline)]
pub use gradlet_core::checkpoint as flat;
#[doc(inline)]
pub use gradlet_core::*;
pub use tensorboard::{monitor, profiler, summary};
pub use train::model::Model;
pub use train::models::ModelSpec;
pub use train::{applications, model, models, training};
pub use values::Values;
pub use values::arrays::{from_ndarray, to_ndarray};
pub use values::ragged::RaggedTensor;
pub use values::sparse::SparseTensor;
pub use values::strings::Strings;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
