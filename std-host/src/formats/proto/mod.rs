//! Messages of TensorFlow's formats, for `prost`: made of the `.proto` files in this package's folder `proto` by
//! `cargo xtask proto`. Field by field they are TensorFlow's own; maps are in the order of their keys.
#![allow(missing_docs, clippy::large_enum_variant)]

include!("attr_value.rs");
include!("event.rs");
include!("example.rs");
include!("feature.rs");
include!("function.rs");
include!("graph.rs");
include!("histogram.rs");
include!("node_def.rs");
include!("op_def.rs");
include!("resource_handle.rs");
include!("run_metadata.rs");
include!("step_stats.rs");
include!("summary.rs");
include!("tensor.rs");
include!("tensor_bundle.rs");
include!("tensor_shape.rs");
include!("tensor_slice.rs");
include!("trackable_object_graph.rs");
include!("types.rs");
include!("versions.rs");
include!("xplane.rs");

/// Messages in the metadata of TensorBoard's hparams plugin.
pub mod hparams {
    include!("hparams.rs");
}
