//! Depthwise convolution of quantised images:
//! `y[n,oh,ow,k] = clamp(zero_point + m[k] · (Σ (x[n,ih,iw,k/q] − x₀) · filter[0,kh,kw,k] + bias[k]))`. Here q is the number of filters for
//! each channel. The rest is as for [`quantized_conv2d`](crate::ops::quantized_conv2d). Like DEPTHWISE_CONV_2D of TensorFlow Lite's
//! reference kernels.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
pub use crate::ops::quantized_conv2d::Attributes;
use crate::ops::quantized_conv2d::dims4;
use crate::ops::shared::quantized::{Channels, Quantized, Sum, check_operands};
use crate::ops::shared::window::{Axis, groups, part, split};
#[cfg(feature = "alloc")]
use crate::{
    ops::conv2d::Conv2DOptions, ops::quantized::Requantization, ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op,
};

/// Number of channels that are summed together.
const BLOCK: usize = 8;

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::quantized_depthwise_conv2d,
    name: "quantized_depthwise_conv2d",
    inputs: (4, 4),
    outputs: 1,
    infer,
    in_place: &[],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let ([n, h, w, c], [first, kh, kw, co]) = (dims4(inputs, 0)?, dims4(inputs, 1)?);
    check_operands(inputs, co)?;
    if first != 1 {
        return Err(Error::Dimension { input: 1, axis: 0, want: 1, got: first });
    }
    if co.checked_rem(c).unwrap_or(co) != 0 {
        return Err(Error::Dimension { input: 1, axis: 3, want: c, got: co });
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
    let attributes: Attributes = call.attributes()?;
    let (x, filter, channels) = (call.input(0)?, call.input(1)?, Channels::<S>::of(call)?);
    let (&[n, h, w, c], &[_, kh, kw, co]) = (x.dims(), filter.dims()) else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.window.axes([h, w], [kh, kw])?;
    let [w, c, co, kh, kw] = [w, c, co, kh, kw].map(|dim| dim as usize);
    let image = down.input * w * c;
    let window = Window { down, across, kw, w, c, co, filter: filter.slice(), zero_point: attributes.input_zero_point };
    let pixels = call.rows(n as usize * down.output * across.output, co * (kh * kw * 6 + 30) + 100);
    let x = x.slice::<T>();
    let mut results = call.output()?.slice_mut::<T>().chunks_exact_mut(co.max(1)).skip(pixels.start);
    for (row, columns) in groups(pixels, across.output) {
        let (of_image, oh) = split(row, down.output);
        let x = part(x, of_image * image, image);
        for (ow, y) in columns.zip(&mut results) {
            for (block, y) in y.chunks_mut(BLOCK).enumerate() {
                let first = block * BLOCK;
                let sums = window.sums::<T, S>(x, [oh, ow], first);
                for ((channel, y), sum) in (first..).zip(y).zip(sums) {
                    let (bias, multiplier) = channels.get(channel);
                    *y = attributes.output.element(sum.plus(bias).scaled(multiplier));
                }
            }
        }
    }
    Ok(())
}

/// The window of a depthwise convolution, and its filter.
struct Window<'a> {
    down: Axis,
    across: Axis,
    kw: usize,
    w: usize,
    c: usize,
    co: usize,
    filter: &'a [i8],
    zero_point: i32,
}

impl Window<'_> {
    /// Returns the sums for the results of one position from channel `first` on.
    #[inline(always)]
    fn sums<T: Quantized, S: Sum>(&self, x: &[T], [oh, ow]: [usize; 2], first: usize) -> [S; BLOCK] {
        let (vertical, horizontal) = (self.down.taps(oh), self.across.taps(ow));
        let mut sums = [S::ZERO; BLOCK];
        for kh in vertical.first..vertical.end {
            let row = self.down.input_at(oh, kh) * self.w;
            for tap in horizontal.first..horizontal.end {
                let pixel = (row + self.across.input_at(ow, tap)) * self.c;
                let count = BLOCK.min(self.co - first);
                let filter = part(self.filter, (kh * self.kw + tap) * self.co + first, count);
                if self.c == self.co {
                    for ((sum, x), &filter) in sums.iter_mut().zip(part(x, pixel + first, count)).zip(filter) {
                        *sum = sum.add_product(x.number() - self.zero_point, filter.into());
                    }
                } else {
                    let of_channel = self.co / self.c.max(1);
                    for ((sum, channel), &filter) in sums.iter_mut().zip(first..).zip(filter) {
                        let x = x.get(pixel + channel / of_channel.max(1)).map_or(0, |x| x.number() - self.zero_point);
                        *sum = sum.add_product(x, filter.into());
                    }
                }
            }
        }
        sums
    }
}

crate::ops::kernels!(run: I8 = i8, I16 = i16);

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op::total(&DEF, "quantized_depthwise_conv2d(x[n,h,w,c], filter[1,kh,kw,c*q], bias[c*q], multipliers[c*q,2])", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the convolution of each channel of quantised images `[n,h,w,c]` with its own filters in the i8 `filter[1,kh,kw,c*q]`, plus
    /// `bias[c*q]`: `[n,oh,ow,c*q]`. It has the bits of TensorFlow Lite's reference kernel of DEPTHWISE_CONV_2D.
    ///
    /// Fails as [`Tensor::quantized_conv2d`] does.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::{Quantization, ops::Requantization};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1i8, 2, 3, 4], &[1, 1, 2, 2])?;
    /// let filter = Tensor::new(&device, &[10i8, 20], &[1, 1, 1, 2])?;
    /// let bias = Tensor::new(&device, &[0, 4], &[2])?;
    /// let of = |scale| Quantization { scale, zero_point: 0 };
    /// let scaling = Requantization { input: of(1.0), filter: &[1.0, 0.5], output: of(1.0), range: Some((0, 40)) };
    /// let y = x.quantized_depthwise_conv2d(&filter, &bias, &Default::default(), &scaling)?;
    /// assert_eq!(y.to_vec::<i8>()?, [10, 22, 30, 40]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_depthwise_conv2d(
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
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::{cases, meetings, output, words};
    use crate::ops::quantized_conv2d::tests::{integers, multipliers};
    use crate::ops::shared::quantized::Output;
    use crate::ops::shared::testing::{Value, indices, position, run_every_way};
    use std::vec::Vec;

    #[test]
    fn agrees_with_the_formula() {
        let mut seen = 0;
        for (x_dims, [kh, kw, c, q], window) in cases() {
            let co = c * q;
            let Some(y_dims) = output(x_dims, [kh, kw, c, co], &window) else { continue };
            let f_dims = [1, kh, kw, co];
            let (left, right, bias) = (integers(&x_dims, 1, 31.0), integers(&f_dims, 2, 31.0), integers(&[co], 3, 900.0));
            let (multipliers, pairs) = multipliers(co);
            let attributes = Attributes { window, input_zero_point: -3, output: Output { zero_point: 4, least: -100, greatest: 127 } };
            let mut sums = std::vec![0i32; indices(&y_dims).len()];
            for ([n, ih, iw], [oh, ow], [kh, kw]) in meetings(x_dims, [kh, kw], [y_dims[1], y_dims[2]], &window) {
                for k in 0..co {
                    let x = left[position(&x_dims, &[n, ih, iw, k / q])] + 3;
                    sums[position(&y_dims, &[n, oh, ow, k])] += x * right[position(&f_dims, &[0, kh, kw, k])];
                }
            }
            let result = |(at, sum): (usize, &i32)| {
                let channel = at % co.max(1) as usize;
                (multipliers[channel].twice(sum + bias[channel]) + 4).clamp(-100, 127)
            };
            let want: Vec<i32> = sums.iter().enumerate().map(result).collect();
            let (narrow, wide) = (|x: &i32| *x as i8, |x: &i32| *x as i16);
            let filter = Value::new(&right.iter().map(narrow).collect::<Vec<_>>(), &f_dims);
            let bias = Value::new(&bias, &[co]);
            let x = Value::new(&left.iter().map(narrow).collect::<Vec<_>>(), &x_dims);
            let got = run_every_way(&I8, &words(attributes), &[&x, &filter, &bias, &pairs]);
            assert!(got[0] == Value::new(&want.iter().map(narrow).collect::<Vec<_>>(), &y_dims), "{x_dims:?} {f_dims:?} {window:?}");
            let x = Value::new(&left.iter().map(wide).collect::<Vec<_>>(), &x_dims);
            let got = run_every_way(&I16, &words(attributes), &[&x, &filter, &bias, &pairs]);
            assert!(got[0] == Value::new(&want.iter().map(wide).collect::<Vec<_>>(), &y_dims), "{x_dims:?} {f_dims:?} {window:?}");
            seen += usize::from(!want.is_empty());
        }
        assert!(seen > 200, "{seen}");
    }
}
