//! Ops along axes: sums, extremes, cumulative sums, softmax and its losses.

pub mod all;
pub mod any;
pub mod argmax;
pub mod argmin;
pub mod cumprod;
pub mod cumsum;
pub mod log_softmax;
pub mod max;
pub mod mean;
pub mod min;
pub mod prod;
pub mod softmax;
pub mod sparse_softmax_cross_entropy;
pub mod sparse_softmax_cross_entropy_grad;
pub mod sum;
pub mod top_k;
