//! gradlet on the host: datasets, file formats, training, export, and the `gradlet` command.
//!
//! Everything of [`gradlet_core`] is here too, so a program on the host needs this crate only.

pub mod applications;
mod arrays;
mod artifact_values;
pub mod checkpoint;
pub mod data;
pub mod datasets;
mod devices;
pub mod digits;
pub mod example;
pub mod export;
mod file_error;
mod files;
pub mod firmware;
pub mod idx;
pub mod image;
pub mod inspect;
pub mod io;
mod json;
mod kernels;
pub mod loaded;
pub mod model;
pub mod models;
pub mod monitor;
pub mod npy;
pub mod profiler;
mod progress;
pub mod proto;
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
mod ragged;
pub mod raw;
mod sparse;
mod strings;
pub mod summary;
mod svg;
mod team;
pub mod tensor_proto;
pub mod tfrecord;
pub mod training;
mod values;
pub mod weights;

pub use arrays::{from_ndarray, to_ndarray};
pub use data::Dataset;
pub use devices::{cpu, portable_cpu};
pub use digits::Digits;
pub use file_error::{FileError, FileResult};
pub use files::{WholeFile, writable, write_whole};
/// Flat checkpoints, of an artifact's variables: what a device writes.
#[doc(inline)]
pub use gradlet_core::checkpoint as flat;
#[doc(inline)]
pub use gradlet_core::*;
pub use loaded::{Loaded, load};
pub use model::Model;
pub use models::ModelSpec;
pub use ragged::RaggedTensor;
pub use sparse::SparseTensor;
pub use strings::Strings;
pub use values::Values;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
