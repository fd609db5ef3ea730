//! Foundations of the crate: errors, element types, shapes, scales of quantised tensors, byte views, random numbers, artifact records, and
//! op definitions.

pub mod dtype;
pub mod error;
pub mod format;
pub mod op;
pub mod quantization;
pub mod random;
pub mod shape;
#[cfg(feature = "alloc")]
pub mod sync;
pub mod view;
