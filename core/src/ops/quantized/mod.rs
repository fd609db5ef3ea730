//! Ops on quantised tensors: integers with a scale and a zero point, as in TensorFlow Lite.
//!
//! An integer `q` stands for the real number `scale · (q − zero_point)`. Kernels compute with integers only. The scales of an op's operands
//! reach it as a fixed-point [`Multiplier`], which is computed when the op is emitted.

pub use crate::ops::shared::fixed_point::Multiplier;

/// Scale and zero point of a whole tensor: an element `q` stands for the real number `scale · (q − zero_point)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantization {
    /// Distance between the real numbers of neighbouring integers. Positive and finite.
    pub scale: f32,
    /// Integer that stands for 0.
    pub zero_point: i32,
}
