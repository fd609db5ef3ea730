//! Scopes that compute eagerly, record a graph or observe; control flow, TensorArray and autograph.

pub mod autograph;
pub(crate) mod control;
pub(crate) mod copies;
pub(crate) mod eager;
pub(crate) mod node_names;
pub(crate) mod observe;
pub(crate) mod replay;
pub(crate) mod scan;
pub(crate) mod tensor_array;
pub(crate) mod tracing;
