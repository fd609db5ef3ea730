//! Errors, element types, shapes, views of bytes, random numbers, the records of an artifact, the definition of an op.

pub mod dtype;
pub mod error;
pub mod format;
pub mod op;
pub mod random;
pub mod shape;
#[cfg(feature = "alloc")]
pub mod sync;
pub mod view;
