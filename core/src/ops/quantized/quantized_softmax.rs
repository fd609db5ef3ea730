//! Softmax of a quantised tensor along its last axis: `y = exp(b·x) / Σ exp(b·x)`. Element types: i8, with the scale 1/256 and the zero
//! point -128 for y; and i16, with the scale 1/32768 and the zero point 0 for y.
//!
//! The second input is a table, which is computed when the op is emitted. The kernels are those of TensorFlow Lite's SOFTMAX.
//!
//! - i8: the table is i32 `[n]`, with `n` from 1 to 256. Element `d` is the exponential of an x that is `d` below the greatest one, with 31
//!   bits after the point. Beyond the table, the exponential is 0. There are no attribute words.
//! - i16: the table is i16 `[2, 513]`: `exp` from -10 to 0, and `1 / (1 + x)` from 0 to 1. The attribute words are a multiplier, which
//!   converts differences of x to the scale 10/65535.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::lookup::{ENTRIES, between};
use crate::ops::shared::elementwise::{same_dims, set};
use crate::ops::shared::fixed_point::{Multiplier, doubling_high, rounding_shift};
use crate::ops::shared::lanes;
#[cfg(feature = "alloc")]
use crate::{
    base::quantization::Quantization, ops::quantized::exponentials, ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op,
};
#[cfg(feature = "alloc")]
use alloc::format;

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_softmax, name: "quantized_softmax", inputs: (2, 2), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x, table] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let wide = match x.dtype {
        DType::I8 => false,
        DType::I16 => true,
        _ => return Err(Error::DType { input: 0 }),
    };
    if table.dtype != if wide { DType::I16 } else { DType::I32 } {
        return Err(Error::DType { input: 1 });
    }
    let fits = if wide { read_attributes::<Multiplier>(attributes)?.is_valid() } else { attributes.is_empty() };
    if !fits {
        return Err(Error::Attribute { index: 0 });
    }
    match *table.shape.dims() {
        ref dims if wide => same_dims(1, &[2, ENTRIES as u32], dims)?,
        [1..=256] => {}
        [got] => return Err(Error::Dimension { input: 1, axis: 0, want: 256, got }),
        _ => return Err(Error::Rank { input: 1 }),
    }
    if x.shape.rank() == 0 {
        return Err(Error::Rank { input: 0 });
    }
    set(outputs, *x)
}

/// Returns the last axis of input 0.
fn last(call: &Call<'_, '_>) -> Result<u32> {
    Ok(call.input(0)?.dims().len().saturating_sub(1) as u32)
}

fn run_i8(call: &mut Call<'_, '_>) -> Result<()> {
    let table = call.input(1)?.slice::<i32>();
    lanes::each(call, last(call)?, 50, |lane: &mut [i8], _| {
        let greatest = lane.iter().fold(i8::MIN, |greatest, &x| greatest.max(x));
        let exponential = |x: i8| table.get((i32::from(greatest) - i32::from(x)) as usize).copied().unwrap_or(0);
        // The sum has 19 bits after the point.
        let sum = lane.iter().fold(0i32, |sum, &x| sum.wrapping_add(rounding_shift(exponential(x), 12))) as u32;
        let zeros = sum.leading_zeros();
        let scale = reciprocal((sum.wrapping_shl(zeros) & i32::MAX as u32) as i32);
        let shift = 35 - zeros;
        for x in lane {
            let y = if shift > 31 { 0 } else { rounding_shift(doubling_high(scale, exponential(*x)), shift) };
            *x = y.saturating_sub(128).clamp(-128, 127) as i8;
        }
    })
}

/// Returns `1 / (1 + x)`. Both x, from 0 to 1, and the result have 31 bits after the point. Newton's method takes three steps.
fn reciprocal(x: i32) -> i32 {
    let half = ((i64::from(x) + (1 << 31)) / 2) as i32;
    // 48/17 − 32/17 · half, with 29 bits after the point.
    let mut y = 1_515_870_810i32.wrapping_add(doubling_high(half, -1_010_580_540));
    for _ in 0..3 {
        let error = (1i32 << 29).wrapping_sub(doubling_high(half, y));
        y = y.wrapping_add(doubling_high(y, error).saturating_mul(4));
    }
    y.saturating_mul(2)
}

fn run_i16(call: &mut Call<'_, '_>) -> Result<()> {
    let multiplier: Multiplier = call.attributes()?;
    let tables = call.input(1)?.slice::<i16>();
    let (exponentials, reciprocals) = tables.split_at_checked(ENTRIES).ok_or(Error::Internal)?;
    lanes::each(call, last(call)?, 80, |lane: &mut [i16], _| {
        let greatest = lane.iter().fold(i16::MIN, |greatest, &x| greatest.max(x));
        let mut sum = 0i32;
        for x in &mut *lane {
            *x = between(exponentials, multiplier.twice(i32::from(*x) - i32::from(greatest)).saturating_add(i16::MAX.into()));
            sum = sum.wrapping_add((*x).into());
        }
        // Without an element in the table, there is no sum. It must have at least two bits.
        let shift = 31 - sum.max(2).leading_zeros();
        let mantissa = ((i64::from(sum) << (30 - shift)) + (1 << 13)) >> 14;
        let scale = between(reciprocals, (mantissa as i32).wrapping_sub((1 << 15) + (1 << 16)));
        for x in lane {
            let product = i64::from(*x) * i64::from(scale) + (1 << (shift - 1));
            *x = (product >> shift).clamp(0, i16::MAX.into()) as i16;
        }
    })
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run: run_i8 };

/// Portable kernel for i16.
pub const I16: Kernel = Kernel { def: &DEF, dtype: DType::I16, run: run_i16 };

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    ..Op::total(&DEF, "quantized_softmax(x, table), where x is i8 and the table i32[n], or x i16 and the table i16[2,513]", NO_GRADIENT)
};

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the softmax of a quantised tensor along its last axis, of x multiplied by `beta`. The result has the scale 1/256 and the
    /// zero point -128 for i8, and the scale 1/32768 and the zero point 0 for i16. It has the bits of TensorFlow Lite's reference kernel
    /// of SOFTMAX.
    ///
    /// Fails on a scalar, unless the elements are i8 or i16, and unless the scale and `beta` are positive and finite.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[10i8, 10, 12, 0], &[4])?;
    /// let y = x.quantized_softmax(gradlet_core::Quantization { scale: 0.5, zero_point: -5 }, 1.0)?;
    /// assert_eq!(y.to_vec::<i8>()?, [-74, -74, 19, -128]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_softmax(&self, from: Quantization, beta: f32) -> Result<Tensor> {
        from.check(self.dtype())?;
        if !(beta > 0.0 && beta.is_finite()) {
            return Err(Error::message(format!("beta must be positive and finite, not {beta}")));
        }
        let device = self.device()?;
        if self.dtype() == DType::I8 {
            let table = exponentials::of_differences(f64::from(from.scale) * f64::from(beta));
            let y = Tensor::emit1(&OP, &[], &[self, &Tensor::new(&device, &table, &[table.len() as u32])?])?;
            return y.with_quantization(Quantization { scale: 1.0 / 256.0, zero_point: i8::MIN.into() });
        }
        let table = Tensor::new(&device, &exponentials::of_fractions(), &[2, ENTRIES as u32])?;
        // TensorFlow Lite multiplies the scale by beta in f32 here, but in f64 for i8.
        let multiplier = Multiplier::new(f64::from(from.scale * beta) / (10.0 / 65535.0));
        let y = Tensor::emit1(&OP, bytemuck::cast_slice(&[multiplier]), &[self, &table])?;
        y.with_quantization(Quantization { scale: 1.0 / 32768.0, zero_point: 0 })
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::quantized_conv2d::tests::integers;
    use crate::ops::shared::quantized::Quantized;
    use crate::ops::shared::testing::{Value, device, run, run_every_way};
    use std::vec::Vec;

    fn softmax<T: Quantized>(scale: f32, beta: f32, dims: &[u32], x: &[T]) -> Vec<T> {
        let x = Tensor::new(device(), x, dims).unwrap();
        x.quantized_softmax(Quantization { scale, zero_point: 0 }, beta).unwrap().to_vec().unwrap()
    }

    fn check<T: Quantized>(scale: f32, beta: f32, dims: &[u32], x: &[T], want: &[T]) {
        assert_eq!(softmax(scale, beta, dims, x), want, "{scale} {x:?}");
    }

    /// The results are those of TensorFlow 2.21's reference kernel of SOFTMAX.
    #[rustfmt::skip]
    #[test]
    fn same_bits_as_tensorflow() {
        check::<i8>(0.05, 1.0, &[2, 5],
            &[-113, 73, 34, 13, 75, -66, 93, -43, 119, -47],
            &[-128, -17, -112, -122, -5, -128, -73, -128, 73, -128]);
        check::<i8>(0.3, 1.0, &[3, 4],
            &[-3, -5, 7, -8, -10, 9, -4, -7, 6, 5, 6, 5],
            &[-116, -122, 107, -125, -127, 120, -123, -126, -54, -74, -54, -74]);
        check::<i8>(1.7, 1.0, &[8], &[56, -45, 32, -17, 20, 44, -6, 57], &[-88, -128, -128, -128, -128, -128, -128, 88]);
        check::<i8>(0.1, 1.0, &[1, 1], &[53], &[127]);
        check::<i8>(0.021, 2.5, &[2, 3], &[-28, -37, 30, -26, -28, -4], &[-117, -121, 110, -78, -83, 32]);
        check::<i8>(20.0, 1.0, &[6], &[-62, -38, -43, -29, 35, -99], &[-128, -128, -128, -128, 127, -128]);
        check::<i16>(5.2651383e-05, 0.7, &[4], &[29895, 9406, -7015, 18007], &[13816, 6493, 3545, 8915]);
        check::<i16>(0.0001953125, 1.0, &[2, 5],
            &[-20611, 3288, 16705, -10468, -27798, 30412, -7030, -2737, -32582, 32593],
            &[21, 2211, 30379, 151, 6, 12934, 8, 21, 1, 19804]);
        check::<i16>(0.001171875, 1.0, &[3, 4],
            &[-236, 1399, -2539, -788, -2862, 1167, 1917, -1010, -1805, -2746, 1911, 2690],
            &[3908, 26549, 263, 2047, 84, 9375, 22577, 731, 120, 40, 9339, 23269]);
        check::<i16>(0.006640625, 1.0, &[8], &[-7116, -2007, 9231, -2627, -1784, 10138, 5246, 6751], &[2, 2, 79, 2, 2, 32677, 2, 2]);
        check::<i16>(0.000390625, 1.0, &[1, 1], &[31081], &[32767]);
        check::<i16>(8.203125e-05, 2.5, &[2, 3], &[6348, -5992, 2890, 2685, -8050, -8538], &[20848, 1660, 10260, 27064, 2995, 2710]);
        check::<i16>(0.078125, 1.0, &[6], &[15904, -2290, 31539, -22196, 10546, 17464], &[2, 2, 32757, 2, 2, 2]);
    }

    /// Asserts that the results for x up to 128 times `unit` are near those of f64. The result 1 has `one` units above `zero_point`.
    fn is_near<T: Quantized>(unit: f64, one: f64, zero_point: f64, tolerance: f64) {
        for (count, scale) in [(1, 0.1), (2, 0.01), (10, 0.25), (300, 0.004), (7, 3.0)] {
            let scale = (scale / unit) as f32;
            let x: Vec<T> = integers(&[4, count], 7, 31.0 * unit).into_iter().map(T::of).collect();
            let y = softmax(scale, 1.0, &[4, count], &x);
            for (x, y) in x.chunks(count as usize).zip(y.chunks(count as usize)) {
                let exponentials: Vec<f64> = x.iter().map(|x| libm::exp(f64::from(scale) * f64::from(x.number()))).collect();
                let sum: f64 = exponentials.iter().sum();
                for (exponential, y) in exponentials.iter().zip(y) {
                    let want = (exponential / sum * one + zero_point).min(T::GREATEST.into());
                    assert!((f64::from(y.number()) - want).abs() <= tolerance, "{count} {scale}: {y:?}, not {want}");
                }
            }
        }
    }

    #[test]
    fn near_the_real_softmax() {
        is_near::<i8>(1.0, 256.0, -128.0, 0.51);
        is_near::<i16>(256.0, 32768.0, 0.0, 32.0);
    }

    #[test]
    fn in_place_in_slices_and_without_elements() {
        for dims in [&[3u32, 5][..], &[2, 2, 1], &[0, 3], &[3, 0], &[600]] {
            let x = integers(dims, 5, 31.0);
            let table = exponentials::of_differences(0.1);
            let table = Value::new(&table, &[table.len() as u32]);
            run_every_way(&I8, &[], &[&Value::new(&x.iter().map(|&x| x as i8).collect::<Vec<_>>(), dims), &table]);
            let table = Value::new(&exponentials::of_fractions(), &[2, 513]);
            let words: [u32; 2] = bytemuck::cast(Multiplier::new(3.0));
            run_every_way(&I16, &words, &[&Value::new(&x.iter().map(|&x| x as i16).collect::<Vec<_>>(), dims), &table]);
        }
    }

    /// TensorFlow Lite refuses to compute such a sum.
    #[test]
    fn many_equal_elements() {
        assert_eq!(softmax(0.1, 1.0, &[511], &[3i8; 511]), [-127; 511]);
        assert_eq!(softmax(0.1, 1.0, &[513], &[3i8; 513]), [-128; 513]);
        assert_eq!(softmax(0.1, 1.0, &[40_000], &std::vec![3i8; 40_000]), [-128; 40_000]);
    }

    #[test]
    fn absurd_tables_are_refused_or_harmless() {
        let (narrow, wide) = (Value::new(&[i8::MIN, 0, i8::MAX], &[3]), Value::new(&[i16::MIN, 0, i16::MAX], &[3]));
        for entry in [i32::MIN, -1, 0, 1, i32::MAX] {
            run_every_way(&I8, &[], &[&narrow, &Value::new(&[entry; 256], &[256])]);
            let words: [u32; 2] = bytemuck::cast(Multiplier { value: i32::MAX, exponent: 30 });
            run_every_way(&I16, &words, &[&wide, &Value::new(&[(entry >> 16) as i16; 1026], &[2, 513])]);
        }
        let table = Value::new(&[1; 3], &[3]);
        let refused = |x: &Value, table: &Value, words: &[u32]| run(&I8, words, &[x, table], &[]).0.unwrap_err();
        assert_eq!(refused(&narrow, &table, &[0]), Error::Attribute { index: 0 });
        assert_eq!(refused(&narrow, &wide, &[]), Error::DType { input: 1 });
        assert_eq!(refused(&narrow, &Value::new::<i32>(&[], &[0]), &[]), Error::Dimension { input: 1, axis: 0, want: 256, got: 0 });
        assert_eq!(refused(&Value::new(&[1i8], &[]), &table, &[]), Error::Rank { input: 0 });
        let table = Value::new(&exponentials::of_fractions(), &[2, 513]);
        assert_eq!(run(&I16, &[0, 31], &[&wide, &table], &[]).0, Err(Error::Attribute { index: 0 }));
        assert_eq!(run(&I16, &[0], &[&wide, &table], &[]).0, Err(Error::Attribute { index: 0 }));
        let x = Tensor::new(device(), &[1i8], &[1]).unwrap();
        assert!(x.quantized_softmax(Quantization { scale: 1.0, zero_point: 0 }, f32::NAN).is_err());
        for (scale, beta) in [(f32::MAX, 9.0), (f32::MIN_POSITIVE, 0.1)] {
            let from = Quantization { scale, zero_point: 0 };
            assert!(x.quantized_softmax(from, beta).is_ok());
            let _ = Tensor::new(device(), &[1i16], &[1]).unwrap().quantized_softmax(from, beta);
        }
    }
}
