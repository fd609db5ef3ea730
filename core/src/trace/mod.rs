//! Scopes: computing at once, recording a graph, watching, and the control flow and arrays that are recorded in graphs.

pub mod autograph;
pub mod control;
pub mod eager;
pub(crate) mod node_names;
pub mod observe;
pub(crate) mod replay;
pub mod scan;
pub mod tensor_array;
pub mod tracing;
