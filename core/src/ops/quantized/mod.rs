//! Ops on quantised tensors: integers with a scale and a zero point, as in TensorFlow Lite.
//!
//! An integer `q` stands for the real number `scale · (q − zero_point)`. Kernels compute with integers only. The scales of an op's operands
//! reach it as a fixed-point [`Multiplier`], which is computed when the op is emitted.

pub mod dequantize;
#[cfg(feature = "alloc")]
mod exponentials;
pub mod lookup;
pub mod packed_conv2d;
pub mod packed_dense;
pub mod packed_depthwise_conv2d;
#[cfg(feature = "alloc")]
pub(crate) mod packing;
mod pair;
pub mod quantize;
pub mod quantized_add;
pub mod quantized_avg_pool2d;
pub mod quantized_conv2d;
pub mod quantized_dense;
pub mod quantized_depthwise_conv2d;
pub mod quantized_l2_normalize;
pub mod quantized_lstm_step;
pub mod quantized_matmul;
pub mod quantized_mean;
pub mod quantized_mul;
pub mod quantized_resize_bilinear;
pub mod quantized_sigmoid;
pub mod quantized_softmax;
pub mod quantized_squared_difference;
pub mod quantized_svdf_step;
pub mod requantize;
#[cfg(feature = "alloc")]
mod scaling;
#[cfg(feature = "alloc")]
pub mod tables;

pub use crate::ops::shared::fixed_point::Multiplier;
#[cfg(feature = "alloc")]
pub use {pair::PairQuantization, quantized_lstm_step::LstmQuantization, quantized_svdf_step::SvdfQuantization, scaling::Requantization};
