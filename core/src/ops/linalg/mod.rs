//! Products of matrices.

pub mod dense;
pub mod matmul;
