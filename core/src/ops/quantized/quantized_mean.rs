//! Mean or sum of a quantised tensor over some axes: `y = clamp(y₀ + m · Σ (x − x₀))`. Element types: i8 and i16.
//!
//! Attribute words: `[x₀, y₀, m, exponent of m, keepdims, axis…]`. For a sum, `m` is `scale of x / scale of y`. For a mean, its mantissa is
//! divided by the number of elements. The product is rounded twice, like in MEAN and SUM of TensorFlow Lite's reference kernels. (SUM of
//! TensorFlow 2.21 has other results for negative sums, and for i16: it does not convert them correctly.)

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::fixed_point::Multiplier;
use crate::ops::shared::quantized::{Output, Quantized, check_zero_point};
use crate::ops::shared::reduce;
use crate::ops::shared::runs::{Runs, run_cost};
#[cfg(feature = "alloc")]
use crate::{base::quantization::Quantization, ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op};
#[cfg(feature = "alloc")]
use alloc::vec::Vec;

/// The attribute words before `keepdims`.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Zero points of x and of the result.
    pub zero_points: [i32; 2],
    /// Multiplier of the sum.
    pub multiplier: Multiplier,
}

impl Attributes {
    /// Number of words.
    const WORDS: usize = 4;

    /// Divides attribute words into these and those of a reduction.
    fn split(words: &[u32]) -> Result<(Attributes, &[u32])> {
        let (own, axes) = words.split_at_checked(Attributes::WORDS).ok_or(Error::Attribute { index: 0 })?;
        Ok((read_attributes(own)?, axes))
    }
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_mean, name: "quantized_mean", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let (Attributes { zero_points, multiplier }, axes) = Attributes::split(attributes)?;
    let dtype = inputs.first().map_or(DType::F32, |x| x.dtype);
    if !matches!(dtype, DType::I8 | DType::I16) {
        return Err(Error::DType { input: 0 });
    }
    check_zero_point(zero_points[0], dtype, 0)?;
    check_zero_point(zero_points[1], dtype, 1)?;
    if !multiplier.is_valid() {
        return Err(Error::Attribute { index: 2 });
    }
    reduce::infer(inputs, axes, outputs).map_err(|error| match error {
        Error::Attribute { index } => Error::Attribute { index: index.saturating_add(Attributes::WORDS as u8) },
        other => other,
    })
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    let (Attributes { zero_points, multiplier }, axes) = Attributes::split(call.attributes)?;
    let x = call.input(0)?;
    let (dims, elements, count) = (x.dims(), x.slice::<T>(), reduce::count(x.dims(), axes));
    let reduced = |axis: usize| axes.iter().skip(1).any(|&own| own as usize == axis);
    let [mut over, mut kept] = [true, false].map(|over| part(dims, |axis| reduced(axis) == over));
    let innermost = over.take();
    let rows = call.rows(call.outputs.first().map_or(0, |y| y.data.len() / size_of::<T>()), 60 + (9 + run_cost(innermost)) * count);
    let y = call.output()?.slice_mut::<T>();
    let zero = zero_points[0].wrapping_mul(count as i32);
    let output = Output { zero_point: zero_points[1], least: T::LEAST, greatest: T::GREATEST };
    kept.each((1, 0), rows, |result, first| {
        // After its last run, the walk over the reduced axes is at its beginning again.
        let mut sum = 0i32;
        for _ in 0..count.checked_div(innermost.0).unwrap_or(0) {
            let run = elements.get(first.wrapping_add(over.advance())..).unwrap_or_default();
            let run = run.iter().step_by(innermost.1.unsigned_abs().max(1)).take(innermost.0);
            sum = run.fold(sum, |sum, x| sum.wrapping_add(x.number()));
        }
        if let Some(y) = y.get_mut(result.start) {
            *y = output.element(multiplier.twice(sum.wrapping_sub(zero)));
        }
    });
    Ok(())
}

/// Returns a walk over the axes of a tensor of `dims` that `has` names. The positions are those in the whole tensor.
fn part(dims: &[u32], has: impl Fn(usize) -> bool) -> Runs {
    let mut stride = 1isize;
    Runs::new(dims.iter().enumerate().rev().filter_map(|(axis, &dim)| {
        let own = (dim as usize, stride);
        stride = stride.wrapping_mul(dim as isize);
        has(axis).then_some(own)
    }))
}

crate::ops::kernels!(run: I8 = i8, I16 = i16);

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_mean(x), where x is i8 or i16, over distinct axes of x", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the mean of a quantised tensor over `axes`. Negative axes count from the end. An empty `axes` reduces all axes. With
    /// `keepdims`, the reduced axes stay in the shape with dimension 1. It has the bits of TensorFlow Lite's reference kernel of MEAN.
    /// Without elements, the mean is 0.
    ///
    /// Fails unless the elements are i8 or i16, the scales are positive and finite, and the zero points are elements. Fails if an axis is
    /// out of range or listed twice.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let from = gradlet_core::Quantization { scale: 0.5, zero_point: 0 };
    /// let to = gradlet_core::Quantization { scale: 0.25, zero_point: 10 };
    /// let x = Tensor::new(&device, &[1i8, 2, 3, -4, -5, -6], &[2, 3])?;
    /// assert_eq!(x.quantized_mean(&[1], false, from, to)?.to_vec::<i8>()?, [14, 0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_mean(&self, axes: &[i32], keepdims: bool, from: Quantization, to: Quantization) -> Result<Tensor> {
        let count = reduce::count(self.dims(), &reduce::attributes(self, axes, keepdims)?) as u64;
        emit(self, axes, keepdims, from, to, divided(ratio(from, to), count))
    }

    /// Returns the sum of a quantised tensor over `axes`, as [`Tensor::quantized_mean`] returns the mean.
    pub fn quantized_sum(&self, axes: &[i32], keepdims: bool, from: Quantization, to: Quantization) -> Result<Tensor> {
        emit(self, axes, keepdims, from, to, ratio(from, to))
    }
}

#[cfg(feature = "alloc")]
fn emit(x: &Tensor, axes: &[i32], keepdims: bool, from: Quantization, to: Quantization, multiplier: Multiplier) -> Result<Tensor> {
    from.check(x.dtype())?;
    to.check(x.dtype())?;
    let own = Attributes { zero_points: [from.zero_point, to.zero_point], multiplier };
    let words: Vec<u32> = [bytemuck::cast_slice(&[own]), &*reduce::attributes(x, axes, keepdims)?].concat();
    Tensor::emit1(&OP, &words, &[x])?.with_quantization(to)
}

/// Returns the ratio of the scales.
#[cfg(feature = "alloc")]
fn ratio(from: Quantization, to: Quantization) -> Multiplier {
    Multiplier::new(f64::from(from.scale) / f64::from(to.scale))
}

/// Returns the multiplier divided by `count`. The mantissa is truncated, as in TensorFlow Lite.
#[cfg(feature = "alloc")]
fn divided(Multiplier { value, exponent }: Multiplier, count: u64) -> Multiplier {
    let count = count.max(1);
    let shift = (count.ilog2() as i32).min(32).min(31 + exponent);
    Multiplier { value: ((i64::from(value) as u64) << shift).checked_div(count).unwrap_or(0) as i32, exponent: exponent - shift }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::quantized_conv2d::tests::integers;
    use crate::ops::shared::testing::{Value, device, indices, position, run, run_every_way, shapes};

    fn check<T: Quantized>(scales: [(f32, i32); 2], (dims, x): (&[u32], &[T]), axes: &[i32], want: &[T]) {
        let [from, to] = scales.map(|(scale, zero_point)| Quantization { scale, zero_point });
        let x = Tensor::new(device(), x, dims).unwrap();
        assert_eq!(x.quantized_mean(axes, false, from, to).unwrap().to_vec::<T>().unwrap(), want, "{scales:?}");
    }

    /// The results are those of TensorFlow 2.21's reference kernel of MEAN.
    #[rustfmt::skip]
    #[test]
    fn same_bits_as_tensorflow() {
        check::<i8>([(0.16525109, -25), (0.19802521, -44)],
            (&[2, 2, 3, 2],
            &[-73, 105, 18, 85, -25, -121, 116, 124, 61, -18, 32, -53, -70, 94, -71, 107, 27, 69, -84, 56, 55, -126, 118, -58]),
            &[1, 2],
            &[-5, -6, -26, -3]);
        check::<i8>([(0.10740139, -6), (0.055399004, 39)],
            (&[3, 5],
            &[29, 66, 107, -100, -117, 63, 111, -37, -122, -109, -106, -83, -60, 17, -82]),
            &[1],
            &[45, 14, -71]);
        check::<i8>([(0.1402765, -89), (0.11450144, 15)],
            (&[2, 3, 2],
            &[24, -49, -32, -50, 68, 87, -127, 76, 22, 7, 22, -54]),
            &[0, 2],
            &[101, 108, 127]);
        check::<i8>([(0.2608497, 72), (0.22681521, -8)], (&[2, 3], &[115, 51, -81, 47, -20, -21]), &[0, 1], &[-74]);
        check::<i8>([(0.071555085, 21), (0.071555085, 21)],
            (&[1, 7, 1, 3],
            &[-38, 49, 62, -6, -12, 40, 8, 67, 45, -119, 110, 101, -126, -32, 51, -113, 106, -61, -33, -123, -68]),
            &[1, 2],
            &[-61, 24, 25]);
        check::<i8>([(0.08218523, 4), (0.043960113, -45)],
            (&[4, 3],
            &[72, -4, -76, 41, -27, 71, 8, -123, 79, -80, 15, -22]),
            &[0],
            &[-33, -118, -28]);
        check::<i16>([(0.024694348, 0), (0.011278771, 0)],
            (&[2, 2, 3, 2],
            &[-8875, -31116, 16289, -4759, -5216, 28809, -6713, -30803, 14297, 6555, -621, -19396, 15721, 30912, -11477, 20100, -3640,
            -18619, -13758, 30880, -22882, -12376, -22840, 12487]),
            &[1, 2],
            &[3343, -18505, -21484, 23129]);
        check::<i16>([(0.23700473, 0), (0.15494417, 0)],
            (&[3, 5],
            &[-11034, -28586, -22121, -13505, 8213, -5884, 19981, -30991, -13082, -31999, -27188, -32086, 6018, 24911, 8475]),
            &[1],
            &[-20507, -18960, -6079]);
        check::<i16>([(0.015515124, 0), (0.009128458, 0)],
            (&[2, 3, 2],
            &[-5580, 18636, 3872, -27142, -8397, 26173, 18361, -26681, -10277, 27113, 20169, -27386]),
            &[0, 2],
            &[2013, -2734, 4487]);
        check::<i16>([(0.11517349, 0), (0.13806687, 0)], (&[2, 3], &[-7107, -8033, -30853, 9097, -7383, -10364]), &[0, 1], &[-7597]);
        check::<i16>([(0.15442488, 0), (0.15442488, 0)],
            (&[1, 7, 1, 3],
            &[-7409, 28897, -22577, -19234, 7163, -363, 22100, 8704, 11925, -7180, -17465, -16209, -5257, 2690, 28373, 18142, 1331,
            13578, 11535, -24877, -12537]),
            &[1, 2],
            &[1814, 921, 313]);
        check::<i16>([(0.032989167, 0), (0.027960632, 0)],
            (&[4, 3],
            &[10411, 18792, 29908, -14409, -21434, -17546, 30953, -20924, -10948, 6237, -9253, -27589]),
            &[0],
            &[9791, -9681, -7721]);
    }

    fn agrees<T: Quantized>(kernel: &Kernel, dims: &[u32], axes: &[u32], scale: f64) {
        let x = integers(dims, 3, scale);
        let multiplier = Multiplier { value: (1 << 30) + 12345, exponent: -1 };
        let kept: Vec<u32> = (0..).zip(dims).filter(|(axis, _)| !axes.contains(axis)).map(|(_, &dim)| dim).collect();
        let mut sums = std::vec![0; indices(&kept).len()];
        for index in indices(dims) {
            let ours: Vec<u32> = (0..).zip(&index).filter(|(axis, _)| !axes.contains(axis)).map(|(_, &at)| at).collect();
            sums[position(&kept, &ours)] += x[position(dims, &index)] - 11;
        }
        let of = |x: i32| T::of(x.max(T::LEAST).min(T::GREATEST));
        let want: Vec<T> = sums.iter().map(|&sum| of(multiplier.twice(sum) - 5)).collect();
        let own: [i32; 5] = [11, -5, multiplier.value, multiplier.exponent, 0];
        let words = [bytemuck::cast_slice(&own), axes].concat();
        let x: Vec<T> = x.into_iter().map(of).collect();
        assert!(run_every_way(kernel, &words, &[&Value::new(&x, dims)])[0] == Value::new(&want, &kept), "{dims:?} {axes:?}");
    }

    #[test]
    fn agrees_with_the_formula() {
        for dims in shapes(4, &[1, 3, 5]).iter().chain(&shapes(3, &[0, 2])) {
            for chosen in 0..1u32 << dims.len() {
                let axes: Vec<u32> = (0..dims.len() as u32).filter(|axis| chosen >> axis & 1 == 1).collect();
                agrees::<i8>(&I8, dims, &axes, 32.0);
                agrees::<i16>(&I16, dims, &axes, 8000.0);
            }
        }
    }

    #[test]
    fn sums_and_odd_counts() {
        let x = Tensor::new(device(), &[100i8, 100, -100, -100, -100, 50], &[2, 3]).unwrap();
        let of = |scale, zero_point| Quantization { scale, zero_point };
        let sum = x.quantized_sum(&[-1], true, of(0.5, 0), of(0.75, 5)).unwrap();
        assert_eq!((sum.dims(), sum.to_vec::<i8>().unwrap()), (&[2, 1][..], std::vec![72, -95]));
        // -18.33 is -36.67, halved. Both steps round away from 0.
        assert_eq!(x.quantized_mean(&[], false, of(1.0, 10), of(1.0, -7)).unwrap().item::<i8>().unwrap(), -26);
        let nothing = Tensor::new::<i8>(device(), &[], &[0, 2]).unwrap();
        assert_eq!(nothing.quantized_mean(&[0], false, of(1.0, 3), of(1.0, 4)).unwrap().to_vec::<i8>().unwrap(), [4, 4]);
        assert!(x.quantized_mean(&[], false, of(0.0, 3), of(1.0, 4)).is_err());
        assert_eq!(divided(Multiplier { value: 1 << 30, exponent: -30 }, 1 << 40), Multiplier { value: 0, exponent: -31 });
        assert_eq!(divided(Multiplier { value: i32::MAX, exponent: 30 }, u64::MAX).exponent, -2);
    }

    #[test]
    fn absurd_attributes_are_refused() {
        let x = Value::new(&[1i8; 4], &[2, 2]);
        let refused = |words: &[i32]| run(&I8, bytemuck::cast_slice(words), &[&x], &[]).0;
        for (words, index) in
            [([128, 0, 0, 0, 0], 0), ([0, -129, 0, 0, 0], 1), ([0, 0, -1, 0, 0], 2), ([0, 0, 0, 31, 0], 2), ([0, 0, 0, 0, 2], 4)]
        {
            assert_eq!(refused(&words), Err(Error::Attribute { index }));
        }
        assert_eq!(refused(&[0, 0, 0, 0, 0, 2]), Err(Error::Attribute { index: 5 }));
        assert_eq!(refused(&[0, 0, 0]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0, 0, 0, 0]), Err(Error::Attribute { index: 4 }));
        assert_eq!(refused(&[127, -128, i32::MAX, 30, 1, 0, 1]), Ok(()));
    }
}
