//! Messages of TensorFlow's formats, for `prost`: made of the `.proto` files in this package's folder `proto` by
//! `cargo xtask proto`. Field by field they are TensorFlow's own; maps are in the order of their keys.
#![allow(missing_docs)]

include!("example.rs");
include!("feature.rs");
include!("resource_handle.rs");
include!("tensor.rs");
include!("tensor_bundle.rs");
include!("tensor_shape.rs");
include!("tensor_slice.rs");
include!("trackable_object_graph.rs");
include!("types.rs");
include!("versions.rs");
