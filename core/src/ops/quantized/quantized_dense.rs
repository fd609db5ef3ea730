//! Dense layer on quantised tensors: `y[..,n] = clamp(zero_point + m[n] · (Σ (x[..,k] − x₀) · filter[n,k] + bias[n]))`. Element types: i8,
//! and i16 with `x₀ = 0`; the filter is i8, the bias i32, or i64 for i16. The multiplier `m[n]` is
//! `scale of x · scale of filter[n] / scale of y`.
//!
//! Rounding: the product with `m` is rounded once, like FULLY_CONNECTED of TensorFlow Lite's reference kernels; or twice, as TensorFlow
//! Lite Micro and CMSIS-NN do.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::quantized::{Channels, Output, Quantized, Sum, check_operands, check_zero_point, dot};
use crate::ops::shared::window::part;
#[cfg(feature = "alloc")]
use crate::{ops::quantized::Requantization, ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Zero point of x.
    pub input_zero_point: i32,
    /// Number of roundings: 1 or 2.
    pub roundings: u32,
    /// Zero point and range of the result.
    pub output: Output,
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_dense, name: "quantized_dense", inputs: (4, 4), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let ([x, filter, ..], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let &[n, k] = filter.shape.dims() else { return Err(Error::Rank { input: 1 }) };
    check_operands(inputs, n)?;
    check_zero_point(attributes.input_zero_point, x.dtype, 0)?;
    if !matches!(attributes.roundings, 1 | 2) {
        return Err(Error::Attribute { index: 1 });
    }
    attributes.output.check(x.dtype, 2)?;
    let mut shape = x.shape;
    let axis = shape.rank().wrapping_sub(1) as u8;
    let Some(last) = shape.dims_mut().last_mut() else { return Err(Error::Rank { input: 0 }) };
    if *last != k {
        return Err(Error::Dimension { input: 0, axis, want: k, got: *last });
    }
    *last = n;
    *output = TensorType::new(x.dtype, shape);
    Ok(())
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    match call.input(2)?.dtype() {
        DType::I64 => sums::<T, i64>(call),
        _ => sums::<T, i32>(call),
    }
}

fn sums<T: Quantized, S: Sum>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { input_zero_point, roundings, output } = call.attributes()?;
    let (x, filter, channels) = (call.input(0)?, call.input(1)?, Channels::<S>::of(call)?);
    let (n, k) = (filter.dim(0), filter.dim(1));
    let elements = call.output()?.data.len() / size_of::<T>();
    let elements = call.rows(elements, 5 * k + 60);
    let (x, filter) = (x.slice::<T>(), filter.slice::<i8>());
    let results = call.output()?.slice_mut::<T>().get_mut(elements.clone()).unwrap_or_default();
    for (at, y) in elements.zip(results) {
        let (line, channel) = (at / n.max(1), at % n.max(1));
        let (bias, multiplier) = channels.get(channel);
        let sum = dot(S::ZERO, part(x, line * k, k), part(filter, channel * k, k), input_zero_point).plus(bias);
        *y = output.element(if roundings == 1 { sum.scaled_once(multiplier) } else { sum.scaled(multiplier) });
    }
    Ok(())
}

crate::ops::kernels!(run: I8 = i8, I16 = i16);

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_dense(x[..,k], filter[n,k], bias[n], multipliers[n,2] or [1,2])", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the dense layer of quantised `self[..,k]` with an i8 `filter[n,k]`, plus `bias[n]`: `[..,n]`. It has the bits of
    /// TensorFlow Lite's reference kernel of FULLY_CONNECTED, or with `round_twice` those of TensorFlow Lite Micro.
    ///
    /// Fails if ranks, dimensions or element types do not match, or if a zero point is not an element of its tensor.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::{Quantization, ops::Requantization};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[10i8, 20], &[1, 2])?;
    /// let filter = Tensor::new(&device, &[1i8, 2, 3, 4], &[2, 2])?;
    /// let bias = Tensor::new(&device, &[0, 100], &[2])?;
    /// let of = |scale, zero_point| Quantization { scale, zero_point };
    /// let scaling = Requantization { input: of(0.5, 0), filter: &[1.0], output: of(1.0, -10), range: None };
    /// assert_eq!(x.quantized_dense(&filter, &bias, &scaling, false)?.to_vec::<i8>()?, [15, 95]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_dense(&self, filter: &Tensor, bias: &Tensor, scaling: &Requantization<'_>, round_twice: bool) -> Result<Tensor> {
        let output = scaling.output(self.dtype())?;
        let attributes = Attributes { input_zero_point: scaling.input.zero_point, roundings: 1 + u32::from(round_twice), output };
        Tensor::emit1(&OP, bytemuck::cast_slice(&[attributes]), &[self, filter, bias, &scaling.multipliers(self)?])?
            .with_quantization(scaling.output)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::quantized_conv2d::tests::{integers, multipliers};
    use crate::ops::shared::testing::{Value, run_every_way};
    use std::vec::Vec;

    #[test]
    fn agrees_with_the_formula() {
        for (lines, k, n) in [(1, 1, 1), (3, 7, 5), (2, 40, 9), (0, 3, 2), (2, 0, 3), (1, 3, 0)] {
            let (left, right, bias) = (integers(&[lines, k], 1, 31.0), integers(&[n, k], 2, 31.0), integers(&[n], 3, 900.0));
            let (multipliers, pairs) = multipliers(n);
            for roundings in [1, 2] {
                let attributes =
                    Attributes { input_zero_point: 9, roundings, output: Output { zero_point: 4, least: -100, greatest: 127 } };
                let mut want = Vec::new();
                for at in 0..(lines * n) as usize {
                    let (line, channel, k) = (at / n as usize, at % n as usize, k as usize);
                    let sum: i32 = (0..k).map(|p| (left[line * k + p] - 9) * right[channel * k + p]).sum::<i32>() + bias[channel];
                    let scaled = if roundings == 1 { multipliers[channel].once(sum) } else { multipliers[channel].twice(sum) };
                    want.push((scaled + 4).clamp(-100, 127));
                }
                let narrow = |of: &[i32]| of.iter().map(|&x| x as i8).collect::<Vec<_>>();
                let wide = |of: &[i32]| of.iter().map(|&x| x as i16).collect::<Vec<_>>();
                let (filter, bias) = (Value::new(&narrow(&right), &[n, k]), Value::new(&bias, &[n]));
                let x = Value::new(&narrow(&left), &[lines, k]);
                let got = run_every_way(&I8, &words(attributes), &[&x, &filter, &bias, &pairs]);
                assert!(got[0] == Value::new(&narrow(&want), &[lines, n]), "{lines} {k} {n}");
                let x = Value::new(&wide(&left), &[lines, k]);
                let got = run_every_way(&I16, &words(attributes), &[&x, &filter, &bias, &pairs]);
                assert!(got[0] == Value::new(&wide(&want), &[lines, n]), "{lines} {k} {n}");
            }
        }
    }
}
