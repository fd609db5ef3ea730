//! Optimizer steps: each op updates one variable.

pub mod adam_step;
pub mod matmul_adam;
pub mod matmul_sgd;
pub mod sgd_step;
