//! Scopes that compute eagerly, record a graph or observe; control flow, TensorArray and autograph.

pub mod autograph;
pub mod control;
pub mod eager;
pub(crate) mod node_names;
pub mod observe;
pub(crate) mod replay;
pub mod scan;
pub mod tensor_array;
pub mod tracing;
