//! Scales and zero points of an op's operands, and the attribute words that they become.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::quantization::{Quantization, limits};
use crate::ops::conv2d::Conv2DOptions;
use crate::ops::quantized::Multiplier;
use crate::ops::quantized::quantized_conv2d::Attributes;
use crate::ops::shared::quantized::Output;
use crate::tensor::Tensor;
use crate::tensor::scope::Op;
use alloc::vec::Vec;

/// Scales of an op with a filter, and the range of its results.
#[derive(Clone, Copy, Debug)]
pub struct Requantization<'a> {
    /// Scale and zero point of x.
    pub input: Quantization,
    /// Scale of each channel of the filter, or one scale for all channels. The zero point of a filter is 0.
    pub filter: &'a [f32],
    /// Scale and zero point of the result.
    pub output: Quantization,
    /// Smallest and largest element that an activation leaves. `None` for all elements of the type.
    pub range: Option<(i32, i32)>,
}

impl Requantization<'_> {
    /// Returns the attribute words for a result of type `dtype`.
    pub(in crate::ops) fn output(&self, dtype: DType) -> Result<Output> {
        self.input.check(dtype)?;
        self.output.check(dtype)?;
        let (least, greatest) = self.range.or(limits(dtype)).ok_or(Error::Internal)?;
        Ok(Output { zero_point: self.output.zero_point, least, greatest })
    }

    /// Returns the multipliers as an operand: one for each scale of the filter.
    pub(in crate::ops) fn multipliers(&self, x: &Tensor) -> Result<Tensor> {
        let of = |&filter: &f32| Multiplier::new(f64::from(self.input.scale) * f64::from(filter) / f64::from(self.output.scale));
        let multipliers: Vec<Multiplier> = self.filter.iter().map(of).collect();
        Tensor::new::<i32>(&x.device()?, bytemuck::cast_slice(&multipliers), &[multipliers.len() as u32, Multiplier::WORDS as u32])
    }

    /// Emits a convolution of x with a filter and a bias.
    pub(in crate::ops) fn emit_windowed(&self, op: &'static Op, operands: [&Tensor; 3], options: &Conv2DOptions) -> Result<Tensor> {
        let [x, filter, bias] = operands;
        let output = self.output(x.dtype())?;
        let attributes = Attributes { window: options.attributes(), input_zero_point: self.input.zero_point, output };
        Tensor::emit1(op, bytemuck::cast_slice(&[attributes]), &[x, filter, bias, &self.multipliers(x)?])?.with_quantization(self.output)
    }
}
