//! Matrix products.

pub mod dense;
pub mod matmul;
