//! Tensors and variables, with their element types, shapes and bytes.
//!
//! Without the feature `alloc`, the module has only the types that firmware needs to read and write the memory of a session.

#[cfg(feature = "alloc")]
pub(crate) mod device;
#[cfg(feature = "alloc")]
pub(crate) mod display;
#[cfg(feature = "alloc")]
pub(crate) mod facts;
#[cfg(feature = "alloc")]
pub(crate) mod graph;
#[cfg(feature = "alloc")]
pub(crate) mod handle;
#[cfg(feature = "alloc")]
pub(crate) mod nested;
#[cfg(feature = "alloc")]
pub(crate) mod policy;
#[cfg(feature = "alloc")]
pub(crate) mod profile;
#[cfg(feature = "alloc")]
pub(crate) mod replicas;
#[cfg(feature = "alloc")]
pub(crate) mod scope;
#[cfg(feature = "alloc")]
pub(crate) mod structure;
#[cfg(feature = "alloc")]
pub(crate) mod variable;
#[cfg(feature = "alloc")]
pub(crate) mod waiting;
#[cfg(feature = "alloc")]
pub(crate) mod writing;

#[cfg(feature = "alloc")]
pub(crate) use handle::{explain, size};

pub use crate::base::dtype::{Bool, DType, Element};
#[cfg(feature = "alloc")]
pub use crate::base::quantization::AffineQuantization;
pub use crate::base::quantization::Quantization;
pub use crate::base::shape::{MAX_RANK, Shape, TensorType};
pub use crate::base::view::{TensorView, TensorViewMut};
#[cfg(feature = "alloc")]
pub use {
    device::buffer::Bytes,
    handle::Tensor,
    nested::{Nested, NestedArray},
    policy::DTypePolicy,
    replicas::{VariableAggregation, VariableSynchronization},
    variable::{FirstValue, Variable},
    writing::{Writing, Written},
};
