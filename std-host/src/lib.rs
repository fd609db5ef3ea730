//! gradlet on the host: train with TensorFlow's and Keras's names, export one file, keep learning on a microcontroller.
//!
//! | if you know | here it is |
//! |---|---|
//! | `tf.Tensor`, `tf.Variable`, `tf.ragged`, `tf.sparse` | [`tensor`] |
//! | `tf.config`, `tf.device` | [`config`], [`device`] |
//! | NVIDIA GPUs | [`cuda`] |
//! | eager execution, `tf.name_scope` | [`scope`] |
//! | `tf.GradientTape`, `tf.custom_gradient` | [`autodiff`] |
//! | `tf.function`, `tf.TensorSpec` | [`function`] |
//! | `tf.cond`, `tf.while_loop`, `tf.scan`, `tf.TensorArray` | [`control`] |
//! | `tf.autograph` | [`autograph`] |
//! | `keras.layers`, `keras.losses`, `keras.metrics`, `keras.optimizers` | [`layers`], [`losses`], [`metrics`], [`optimizers`] |
//! | `keras.Model`, `keras.callbacks` | [`train`] |
//! | `keras.applications` | [`applications`] |
//! | `tf.data` | [`data`] |
//! | `keras.datasets`, `keras.utils.image_dataset_from_directory` | [`datasets`] |
//! | `tf.io`, NumPy files, safetensors | [`io`] |
//! | `tf.image` | [`image`] |
//! | `tf.distribute` | [`distribute`] |
//! | `tf.train.Checkpoint`, `tf.train.CheckpointManager` | [`checkpoint`] |
//! | `tf.summary`, `tf.profiler`, TensorBoard | [`summary`], [`profiler`], [`monitor`] |
//! | `tf.saved_model` | [`artifact`] |
//! | post-training quantization, `representative_dataset` | [`quantize`] |
//! | `tf.lite.Interpreter`, `tf.lite.TFLiteConverter`, `.tflite` files | [`tflite`] |
//! | TensorFlow Serving's batching | [`serve`] |
//! | TensorFlow Lite Micro's interpreter | [`runtime`] |
//! | `tf.compat.v1` | [`compat`] |
//! | custom ops | [`ops`], [`custom_op`] |
//!
//! The everyday names are in the [`prelude`], and at the root. The crate `gradlet-core`, which firmware links, is re-exported here, so a
//! program on a host needs this crate only.
//!
//! ```
//! use gradlet::prelude::*;
//! use gradlet::layers::Dense;
//! let scope = Eager::new(&gradlet::cpu());
//! let (layer, x) = (Dense::new(2), Tensor::full(&scope.device(), 1.0f32, &[1, 3])?);
//! layer.build(&scope, x.shape())?;
//! let y = layer.call(&scope, &x)?;
//! assert_eq!(y.dims(), [1, 2]);
//! # Ok::<(), gradlet::Error>(())
//! ```
//!
//! # Features
//!
//! | feature | adds | crates |
//! |---|---|---|
//! | `csv` | CSV files as datasets | `csv`, `serde` |
//! | `cuda` | NVIDIA GPUs | `libloading` |
//! | `image` | JPEG and PNG files, folders of images as datasets, images in summaries | `png`, `zune-jpeg`, `jpeg-encoder` |
//! | `ndarray` | tensors from and to arrays of `ndarray` | `ndarray` |
//! | `npz` | NumPy's `.npz` files | `zip` |
//! | `tflite` | TensorFlow Lite's models | `flatbuffers` |
//! | `full` | all of these | |
//!
//! No feature is on by default, and none changes what the others do.

#![cfg_attr(docsrs, feature(doc_cfg))]

// A folder imports only from those declared before it; `ARCHITECTURE.md` has the map.

// Files that are written whole or not at all, and errors that name a file and a position in it.
mod files;

// The devices of the host's CPU, and the collective operations of replicas.
mod compute;

// Physical and logical devices, their memory and threads, and where ops run.
#[doc(alias = "tf.config")]
pub mod config;

// Values without a type in core: strings, sparse and ragged tensors, arrays of `ndarray`.
mod values;

// Foreign formats: TensorFlow's messages and records, IDX, NumPy, safetensors.
mod formats;

// From files to batches: `Dataset`, known sets, images, lines and CSV.
#[doc(alias = "tf.data")]
pub mod data;

// The same program on several devices: replicas, copies of variables, sums over replicas.
#[doc(alias = "tf.distribute")]
pub mod distribute;

// TensorFlow's checkpoints: named objects, saved and restored.
#[doc(alias = "tf.train", alias = "tf.train.Checkpoint")]
pub mod checkpoint;

// Data for TensorBoard: summaries, traces, and the telemetry of devices.
mod tensorboard;

// Keras's `compile`, `fit`, `evaluate` and `predict`; named models.
#[doc(alias = "keras.Model", alias = "keras.callbacks")]
pub mod train;

// Artifacts on the host: exported, loaded, inspected, prepared for firmware.
#[doc(alias = "tf.lite", alias = "TFLiteConverter", alias = "tf.saved_model")]
pub mod artifact;

// Requests of many threads, joined to batches.
#[doc(alias = "BatchingSession")]
pub mod serve;

// TensorFlow Lite's models, imported as ops.
#[cfg(feature = "tflite")]
#[doc(alias = "tf.lite.Interpreter")]
pub mod tflite;

/// Layers: the parts of models, with Keras's names, defaults and weight layouts.
#[doc(alias = "keras.layers", alias = "tf.keras.layers")]
pub mod layers {
    #[doc(inline)]
    pub use gradlet_core::layers::*;
    // The trait comes from the line above; code derived by this one names `gradlet`.
    pub use gradlet_derive::HostModule as Module;
}

/// Rust's own `if`, `while` and `for` with tensors as conditions.
#[doc(alias = "tf.autograph")]
pub mod autograph {
    #[doc(inline)]
    pub use gradlet_core::autograph::*;
    // The attribute comes from the line above; code made by this one names `gradlet`.
    pub use gradlet_derive::autograph_in_host as autograph;
}

/// Tensors and variables, their element types and shapes; strings, sparse and ragged tensors.
#[doc(alias = "tf.Tensor", alias = "tf.Variable", alias = "tf.ragged", alias = "tf.sparse", alias = "tf.strings")]
pub mod tensor {
    #[cfg(feature = "ndarray")]
    pub use crate::values::arrays::{from_ndarray, to_ndarray};
    pub use crate::values::{Values, ragged::RaggedTensor, sparse::SparseTensor, strings::Strings};
    #[doc(inline)]
    pub use gradlet_core::tensor::*;
}

/// Devices: their memory and their kernels. [`cpu`] is the host's.
#[doc(alias = "tf.device")]
pub mod device {
    pub use crate::compute::devices::{cpu, portable_cpu};
    #[doc(inline)]
    pub use gradlet_core::device::*;
}

/// NVIDIA GPUs, with only the driver installed. [`config`] lists them; this module is for programs that choose a driver or its settings.
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use crate::config::cuda::physical_devices;
    #[doc(inline)]
    pub use gradlet_cuda::{Driver, External, Gpu, Nccl, Options};
}

/// Files and formats, as `tf.io`: lines, CSV, TFRecord, `tf.train.Example`, serialized tensors, NumPy, safetensors.
#[doc(alias = "tf.io", alias = "tf.parse_example")]
pub mod io {
    #[doc(inline)]
    pub use crate::data::io::*;
    pub use crate::files::{FileError, FileResult, WholeFile, writable, write_whole};
    pub use crate::formats::raw::{ByteOrder, RawType, decode_raw};
    pub use crate::formats::tensor_proto::{
        from_proto, parse_strings, parse_tensor, serialize_strings, serialize_tensor, strings_to_proto, to_proto,
    };
    #[doc(inline)]
    pub use crate::formats::{example, idx, npy, proto, tfrecord, weights};
}

/// TensorFlow 1's graphs and sessions.
#[doc(alias = "tf.compat")]
pub mod compat {
    /// Graphs and sessions, with the options of a session.
    #[doc(alias = "tf.compat.v1")]
    pub mod v1 {
        pub use crate::config::v1::{ConfigProto, GPUOptions};
        #[doc(inline)]
        pub use gradlet_core::compat::v1::*;
    }
}

/// Everyday names, for `use gradlet::prelude::*`.
pub mod prelude {
    #[doc(no_inline)]
    pub use crate::layers::Module;
    #[doc(no_inline)]
    pub use crate::{Dataset, Model};
    #[doc(no_inline)]
    pub use gradlet_core::prelude::*;
}

#[doc(no_inline)]
pub use artifact::load;
#[doc(no_inline)]
pub use data::Dataset;
#[doc(inline)]
pub use data::{datasets, image};
#[doc(no_inline)]
pub use device::{cpu, portable_cpu};
#[doc(no_inline)]
pub use gradlet_core::{
    AffineQuantization, Artifact, DType, DTypePolicy, Device, Differentiate, Eager, Error, Function, Kernel, Print, Program, Quantization,
    Result, Scope, Session, Shape, Summarize, Tensor, TensorArray, TensorSpec, TensorType, Variable,
};
#[doc(inline)]
pub use gradlet_core::{
    autodiff, control, custom_op, error, function, losses, metrics, ops, optimizers, quantize, random, replicas, runtime, scope,
};
pub use tensorboard::{monitor, profiler, summary};
#[doc(no_inline)]
pub use train::Model;
#[doc(inline)]
pub use train::applications;

#[doc(hidden)]
pub use gradlet_core::internal;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
