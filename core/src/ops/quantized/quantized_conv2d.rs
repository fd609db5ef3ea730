//! Convolution of quantised images: `y[n,oh,ow,co] = clamp(zero_point + m[co] · (Σ (x[n,ih,iw,ci] − x₀) · filter[co,kh,kw,ci] + bias[co]))`
//! with the positions of [`conv2d`](crate::ops::conv2d). Positions outside x count as `x₀`, the zero point of x. Element types: i8, and
//! i16 with `x₀ = 0`; the filter is i8, the bias i32. The bias of an i16 convolution can be i64. The multiplier `m[co]` is
//! `scale of x · scale of filter[co] / scale of y`.
//!
//! If the filter has fewer channels than x, the channels of x and of y form groups, and each result is computed from its own group.
//!
//! Rounding: the product with `m` is rounded twice, or once if the bias is i64. Like CONV_2D of TensorFlow Lite's reference kernels.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d;
use crate::ops::shared::quantized::{Channels, Output, Quantized, Sum, check_operands, check_zero_point, dot};
use crate::ops::shared::window::{Axis, groups, part, split};
#[cfg(feature = "alloc")]
use crate::{
    ops::conv2d::Conv2DOptions,
    ops::quantized::Requantization,
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// The window.
    pub window: conv2d::Attributes,
    /// Zero point of x.
    pub input_zero_point: i32,
    /// Zero point and range of the result.
    pub output: Output,
}

/// Index of the first attribute word after the window.
pub(in crate::ops) const AFTER_WINDOW: usize = size_of::<conv2d::Attributes>() / size_of::<u32>();

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_conv2d, name: "quantized_conv2d", inputs: (4, 4), outputs: 1, infer, in_place: &[] };

/// Returns the dimensions of the op's input `input`. Fails unless there are four.
pub(in crate::ops) fn dims4(inputs: &[TensorType], input: u8) -> Result<[u32; 4]> {
    let operand = inputs.get(usize::from(input)).ok_or(Error::Arity { got: inputs.len() as u8 })?;
    operand.shape.dims().try_into().map_err(|_| Error::Rank { input })
}

impl Attributes {
    /// Checks the words for images of type `dtype`, and returns the geometry of the window.
    pub(in crate::ops) fn check(&self, dtype: DType, image: [u32; 2], kernel: [u32; 2]) -> Result<[Axis; 2]> {
        for (axis, side) in (1..).zip(kernel) {
            if side == 0 {
                return Err(Error::Dimension { input: 1, axis, want: 1, got: 0 });
            }
        }
        check_zero_point(self.input_zero_point, dtype, AFTER_WINDOW)?;
        self.output.check(dtype, AFTER_WINDOW + 1)?;
        self.window.axes(image, kernel)
    }
}

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let ([n, h, w, c], [co, kh, kw, ci]) = (dims4(inputs, 0)?, dims4(inputs, 1)?);
    check_operands(inputs, co)?;
    let grouped = c.checked_div(ci).filter(|groups| groups * ci == c && co.checked_rem(*groups) == Some(0));
    if grouped.is_none() && (c, ci) != (0, 0) {
        return Err(Error::Dimension { input: 1, axis: 3, want: c, got: ci });
    }
    let ([x, ..], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: 0 }) };
    let [down, across] = attributes.check(x.dtype, [h, w], [kh, kw])?;
    *output = TensorType::new(x.dtype, Shape::new(&[n, down.output as u32, across.output as u32, co])?);
    Ok(())
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    match call.input(2)?.dtype() {
        DType::I64 => sums::<T, i64>(call),
        _ => sums::<T, i32>(call),
    }
}

fn sums<T: Quantized, S: Sum>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { window, input_zero_point, output } = call.attributes()?;
    let (x, filter, channels) = (call.input(0)?, call.input(1)?, Channels::<S>::of(call)?);
    let (&[n, h, w, c], &[co, kh, kw, ci]) = (x.dims(), filter.dims()) else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = window.axes([h, w], [kh, kw])?;
    let [w, c, co, kh, kw, ci] = [w, c, co, kh, kw, ci].map(|dim| dim as usize);
    let (x, filter, image) = (x.slice::<T>(), filter.slice::<i8>(), down.input * w * c);
    let of_group = co.checked_div(c.checked_div(ci).unwrap_or(1)).unwrap_or(co);
    let pixels = n as usize * down.output * across.output;
    let pixels = call.rows(pixels, co * (kh * (kw * ci * 5 + 40) + 60) + 100);
    let mut results = call.output()?.slice_mut::<T>().chunks_exact_mut(co.max(1)).skip(pixels.start);
    for (row, columns) in groups(pixels, across.output) {
        let (of_image, oh) = split(row, down.output);
        let (x, vertical) = (part(x, of_image * image, image), down.taps(oh));
        for (ow, y) in columns.zip(&mut results) {
            for (channel, y) in y.iter_mut().enumerate() {
                let from = channel.checked_div(of_group).unwrap_or(0) * ci;
                let mut sum = S::ZERO;
                for tap in vertical.first..vertical.end {
                    let (x, filter) =
                        (part(x, down.input_at(oh, tap) * w * c, w * c), part(filter, (channel * kh + tap) * kw * ci, kw * ci));
                    sum = row_sum(sum, &across, ow, x, (c, from), filter, ci, input_zero_point);
                }
                let (bias, multiplier) = channels.get(channel);
                *y = output.element(sum.plus(bias).scaled(multiplier));
            }
        }
    }
    Ok(())
}

/// Adds the products of one row of the image and one row of the filter at output column `ow`. A pixel has `c` channels, of which those
/// from `from` on meet the `ci` channels of the filter.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn row_sum<T: Quantized, S: Sum>(
    mut sum: S,
    across: &Axis,
    ow: usize,
    x: &[T],
    (c, from): (usize, usize),
    filter: &[i8],
    ci: usize,
    zero_point: i32,
) -> S {
    let taps = across.taps(ow);
    if across.dilation() == 1 && c == ci && taps.first < taps.end {
        // The taps of a row are neighbours in both.
        let length = (taps.end - taps.first) * c;
        return dot(sum, part(x, across.input_at(ow, taps.first) * c, length), part(filter, taps.first * c, length), zero_point);
    }
    for tap in taps.first..taps.end {
        sum = dot(sum, part(x, across.input_at(ow, tap) * c + from, ci), part(filter, tap * ci, ci), zero_point);
    }
    sum
}

crate::ops::kernels!(run: I8 = i8, I16 = i16);

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_conv2d(x[n,h,w,c], filter[co,kh,kw,c], bias[co], multipliers[co,2])", NO_GRADIENT);

/// The gradient of ops on quantised tensors.
#[cfg(feature = "alloc")]
pub(in crate::ops) const NO_GRADIENT: Gradient = Gradient::Missing("integers have no gradients: train the float model and quantise it");

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the convolution of quantised images `[n,h,w,c]` with an i8 `filter[co,kh,kw,c]`, plus `bias[co]`: `[n,oh,ow,co]`. It has the
    /// bits of TensorFlow Lite's reference kernel of CONV_2D. With fewer channels in the filter, the convolution is grouped.
    ///
    /// Fails if ranks, channels or element types do not match, if the window is larger than the padded image, or if a zero point is not an
    /// element of its tensor.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::{Quantization, ops::Requantization};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[10i8, 20, 30, 40], &[1, 2, 2, 1])?;
    /// let filter = Tensor::new(&device, &[1i8, 2, 3, 4], &[1, 2, 2, 1])?;
    /// let bias = Tensor::new(&device, &[100], &[1])?;
    /// let scaling = Requantization {
    ///     input: Quantization { scale: 0.5, zero_point: 0 },
    ///     filter: &[0.5],
    ///     output: Quantization { scale: 1.0, zero_point: -10 },
    ///     range: None,
    /// };
    /// let y = x.quantized_conv2d(&filter, &bias, &Default::default(), &scaling)?;
    /// assert_eq!(y.to_vec::<i8>()?, [90]); // 0.25 · (300 + 100) − 10
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_conv2d(
        &self,
        filter: &Tensor,
        bias: &Tensor,
        options: &Conv2DOptions,
        scaling: &Requantization<'_>,
    ) -> Result<Tensor> {
        scaling.emit_windowed(&OP, [self, filter, bias], options)
    }
}

#[cfg(test)]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::{cases, meetings, output, words};
    use crate::ops::shared::fixed_point::Multiplier;
    use crate::ops::shared::testing::{Value, indices, numbers, position, run_every_way};
    use std::vec::Vec;

    /// Returns pseudo-random integers.
    pub(in crate::ops) fn integers(dims: &[u32], seed: u32, scale: f64) -> Vec<i32> {
        numbers(dims, seed).iter().map(|x| (x * scale) as i32).collect()
    }

    #[test]
    fn agrees_with_the_formula() {
        let mut seen = 0;
        for (x_dims, [kh, kw, c, co], window) in cases() {
            let Some(y_dims) = output(x_dims, [kh, kw, c, co], &window) else { continue };
            let f_dims = [co, kh, kw, c];
            let (left, right) = (integers(&x_dims, 1, 31.0), integers(&f_dims, 2, 31.0));
            let bias = integers(&[co], 3, 900.0);
            let (multipliers, pairs) = multipliers(co);
            let attributes = Attributes { window, input_zero_point: 5, output: Output { zero_point: -7, least: -120, greatest: 99 } };
            let mut sums = std::vec![0i32; indices(&y_dims).len()];
            for ([n, ih, iw], [oh, ow], [kh, kw]) in meetings(x_dims, [kh, kw], [y_dims[1], y_dims[2]], &window) {
                for channels in indices(&[c, co]) {
                    let (ci, co) = (channels[0], channels[1]);
                    let x = left[position(&x_dims, &[n, ih, iw, ci])] - 5;
                    sums[position(&y_dims, &[n, oh, ow, co])] += x * right[position(&f_dims, &[co, kh, kw, ci])];
                }
            }
            let want: Vec<i8> = sums
                .iter()
                .enumerate()
                .map(|(at, sum)| {
                    let channel = at % co.max(1) as usize;
                    (multipliers[channel].twice(sum + bias[channel]) - 7).clamp(-120, 99) as i8
                })
                .collect();
            let bytes = |of: &[i32]| of.iter().map(|&x| x as i8).collect::<Vec<_>>();
            let (x, filter) = (Value::new(&bytes(&left), &x_dims), Value::new(&bytes(&right), &f_dims));
            let bias = Value::new(&bias, &[co]);
            let got = run_every_way(&I8, &words(attributes), &[&x, &filter, &bias, &pairs]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {f_dims:?} {attributes:?}");
            seen += usize::from(!want.is_empty());
        }
        assert!(seen > 200, "{seen}");
    }

    /// Returns a multiplier for each channel, also as an operand.
    pub(in crate::ops) fn multipliers(channels: u32) -> (Vec<Multiplier>, Value) {
        let of = |&x: &i32| Multiplier { value: (1 << 30) | x.wrapping_abs(), exponent: -(x & 7) };
        let multipliers: Vec<Multiplier> = integers(&[channels], 4, 1e8).iter().map(of).collect();
        let words: Vec<i32> = multipliers.iter().flat_map(|m| [m.value, m.exponent]).collect();
        let operand = Value::new(&words, &[channels, 2]);
        (multipliers, operand)
    }
}
