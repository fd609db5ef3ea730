//! An optimizer's update of one variable as one op.

pub mod adam_step;
pub mod matmul_adam;
pub mod matmul_sgd;
pub mod sgd_step;
