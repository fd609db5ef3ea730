//! Sum or difference of quantised tensors, broadcast: `y = clamp(y₀ + m · (mₐ · 2ˢ(a − a₀) ± m_b · 2ˢ(b − b₀)))`. Element types: i8 with
//! `s = 20`, and i16 with `s = 15`.
//!
//! Bits: each product is rounded twice, like in ADD and SUB of TensorFlow Lite's reference kernels. `mₐ` and `m_b` are the scales of a and
//! b, divided by twice the larger one. `m` is this divisor, divided by `2ˢ` and the scale of y.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::quantized::pair;
use crate::ops::shared::broadcast::{self, Order};
use crate::ops::shared::elementwise;
use crate::ops::shared::fixed_point::{Multiplier, SmallMultiplier};
use crate::ops::shared::quantized::{Output, Quantized, limit};
#[cfg(feature = "alloc")]
use crate::{ops::quantized::PairQuantization, ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Zero points of a and b.
    pub zero_points: [i32; 2],
    /// Zero point and range of the result.
    pub output: Output,
    /// Multipliers of a and b.
    pub operands: [Multiplier; 2],
    /// Multiplier of the sum.
    pub sum: Multiplier,
    /// 0 for the sum, 1 for the difference.
    pub subtract: u32,
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_add, name: "quantized_add", inputs: (2, 2), outputs: 1, infer, in_place: &[(0, 0), (1, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { zero_points, output, operands, sum, subtract } = read_attributes(attributes)?;
    pair::check(inputs, zero_points, &output, &[operands[0], operands[1], sum])?;
    if subtract > 1 {
        return Err(Error::Attribute { index: 11 });
    }
    elementwise::broadcast(inputs, &[], outputs)
}

/// Returns the number of bits by which operands are shifted to the left.
const fn shift(dtype: DType) -> u32 {
    if matches!(dtype, DType::I16) { 15 } else { 20 }
}

/// The numbers of the formula, for operands x and y.
#[derive(Clone, Copy)]
struct Numbers {
    zero_points: [i32; 2],
    multipliers: [Multiplier; 2],
    /// 1, or -1 for the operand that is subtracted.
    signs: [i32; 2],
    sum: Multiplier,
    zero_point: i32,
}

impl Numbers {
    #[inline(always)]
    fn element<T: Quantized>(&self, x: T, y: T) -> T {
        let term = |at: usize, x: T| {
            let shifted = (x.number() - self.zero_points[at]).wrapping_shl(shift(T::DTYPE));
            self.multipliers[at].twice(shifted).wrapping_mul(self.signs[at])
        };
        T::saturated(self.sum.twice(term(0, x).wrapping_add(term(1, y))).wrapping_add(self.zero_point))
    }

    /// Returns an element without [`SmallMultiplier`]s. Only unusual scales need it.
    #[inline(never)]
    fn rare_element<T: Quantized>(&self, x: T, y: T) -> T {
        self.element(x, y)
    }
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points, output, operands, sum, subtract } = call.attributes()?;
    let order = Order::new(call)?;
    let numbers = Numbers {
        zero_points: order.of(zero_points),
        multipliers: order.of(operands),
        signs: order.of([1, if subtract == 0 { 1 } else { -1 }]),
        sum,
        zero_point: output.zero_point,
    };
    let [p, q] = numbers.multipliers.map(|multiplier| SmallMultiplier::new(multiplier, shift(T::DTYPE), 8));
    let sum = SmallMultiplier::new(sum, 0, 28).plus(output.zero_point);
    let (narrow, exact) = (T::DTYPE == DType::I8, [p, q, sum].iter().all(SmallMultiplier::is_exact));
    let ([x_zero_point, y_zero_point], [x_sign, y_sign]) = (numbers.zero_points, numbers.signs);
    broadcast::rows(call, order, if narrow && exact { 55 } else { 110 }, &move |x: &mut [T], y| {
        for (x, y) in x.iter_mut().zip(y) {
            *x = if narrow && exact {
                let terms = [p.of(x.number() - x_zero_point), q.of(y.number() - y_zero_point)];
                T::saturated(sum.of(terms[0] * x_sign + terms[1] * y_sign))
            } else if narrow {
                numbers.rare_element(*x, *y)
            } else {
                numbers.element(*x, *y)
            };
        }
        limit(x, [output.least, output.greatest]);
    })
}

crate::ops::kernels!(run: I8 = i8, I16 = i16);

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_add(a, b), broadcast, both i8 or both i16", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the sum of two quantised tensors, broadcast. It has the bits of TensorFlow Lite's reference kernel of ADD.
    ///
    /// Fails unless both are i8 or both i16, the shapes broadcast, the scales are positive and finite, and the zero points are elements.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let half = gradlet_core::Quantization { scale: 0.5, zero_point: 0 };
    /// let one = gradlet_core::Quantization { scale: 1.0, zero_point: -128 };
    /// let scaling = ops::PairQuantization { left: half, right: half, output: one, range: None };
    /// let a = Tensor::new(&device, &[1i8, 2, 100], &[3])?;
    /// let b = Tensor::new(&device, &[3i8], &[1])?;
    /// assert_eq!(a.quantized_add(&b, &scaling)?.to_vec::<i8>()?, [-126, -125, -76]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_add(&self, other: &Tensor, scaling: &PairQuantization) -> Result<Tensor> {
        Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes::new(scaling, self.dtype(), false)?]), &[self, other])?
            .with_quantization(scaling.output)
    }

    /// Returns the difference of two quantised tensors, broadcast. It has the bits of TensorFlow Lite's reference kernel of SUB. Fails as
    /// [`Tensor::quantized_add`] does.
    pub fn quantized_sub(&self, other: &Tensor, scaling: &PairQuantization) -> Result<Tensor> {
        Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes::new(scaling, self.dtype(), true)?]), &[self, other])?
            .with_quantization(scaling.output)
    }
}

#[cfg(feature = "alloc")]
impl Attributes {
    fn new(scaling: &PairQuantization, dtype: DType, subtract: bool) -> Result<Attributes> {
        let [left, right] = [scaling.left.scale, scaling.right.scale];
        let twice = 2.0 * f64::from(if left < right { right } else { left });
        let unit = f64::from(1 << shift(dtype)) * f64::from(scaling.output.scale);
        let (zero_points, output) = scaling.words(dtype)?;
        Ok(Attributes {
            zero_points,
            output,
            operands: [left, right].map(|scale| Multiplier::new(f64::from(scale) / twice)),
            sum: Multiplier::new(twice / unit),
            subtract: subtract.into(),
        })
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::quantized::pair::tests::{ANY, check_each, check_nearest, scaling};
    use crate::ops::shared::testing::{Value, run, run_every_way};

    type Operand<'a, T> = (&'a [u32], &'a [T]);

    fn check<T: Quantized>(subtract: bool, scales: [(f32, i32); 3], reals: (f32, f32), a: Operand<'_, T>, b: Operand<'_, T>, want: &[T]) {
        let attributes = words(Attributes::new(&scaling::<T>(scales, reals), T::DTYPE, subtract).unwrap());
        let kernel = if T::DTYPE == DType::I8 { &I8 } else { &I16 };
        let y = run_every_way(kernel, &attributes, &[&Value::new(a.1, a.0), &Value::new(b.1, b.0)]);
        assert_eq!(y[0].elements::<T>(), want, "{scales:?}");
    }

    /// The results are those of TensorFlow 2.21's reference kernels of ADD and SUB.
    #[rustfmt::skip]
    #[test]
    fn same_bits_as_tensorflow() {
        check::<i8>(false, [(0.01559033, 42), (0.022582335, -95), (0.032565933, -3)], ANY,
            (&[2, 4], &[-91, -26, 109, 12, -110, 10, -95, 65]),
            (&[4], &[114, 122, 31, 94]),
            &[78, 115, 116, 114, 69, 127, 19, 127]);
        check::<i8>(false, [(0.05849046, -27), (0.10481316, 71), (0.103286274, -73)], (0.0, f32::INFINITY),
            (&[2, 1], &[-39, 73]),
            (&[3], &[-65, 43, -11]),
            &[-73, -73, -73, -73, -45, -73]);
        check::<i8>(false, [(0.16792086, 2), (0.26079085, -73), (0.51461315, -60)], (0.0, 6.0),
            (&[8], &[-50, 13, 82, -5, 123, -38, 109, 23]),
            (&[8], &[56, -68, 23, 77, 98, 94, 119, -96]),
            &[-48, -54, -48, -48, -48, -48, -48, -60]);
        check::<i8>(false, [(0.050189145, 94), (0.049285956, 79), (0.035953686, -40)], (-1.0, 1.0),
            (&[], &[-18]),
            (&[5], &[-67, -91, 91, 44, -109]),
            &[-68, -68, -68, -68, -68]);
        check::<i16>(false, [(0.0022498139, 0), (0.0019258664, 0), (0.001454065, 0)], ANY,
            (&[2, 4], &[-19516, -21329, -19611, -3801, -10110, 14876, -2038, -10551]),
            (&[4], &[26616, 8215, 12934, 16116]),
            &[5056, -22121, -13213, 15464, 19609, 32767, 13977, 5020]);
        check::<i16>(false, [(0.00010600243, 0), (7.797854e-05, 0), (0.00021147593, 0)], (0.0, f32::INFINITY),
            (&[2, 1], &[-10531, -26882]),
            (&[3], &[-2641, 20948, 12519]),
            &[0, 2446, 0, 0, 0, 0]);
        check::<i16>(false, [(0.000120781966, 0), (5.6949375e-05, 0), (0.00021550476, 0)], (0.0, 6.0),
            (&[8], &[-27973, 5759, -31448, -12537, 28361, -11969, -12514, -26920]),
            (&[8], &[18002, -21452, -71, -31157, -31323, 22224, -32255, -2209]),
            &[0, 0, 0, 0, 7618, 0, 0, 0]);
        check::<i16>(false, [(0.00015516879, 0), (0.0003029544, 0), (0.0002647561, 0)], (-1.0, 1.0),
            (&[], &[27737]),
            (&[5], &[-28710, -23510, 6448, 24070, 25936]),
            &[-3777, -3777, 3777, 3777, 3777]);
        check::<i8>(true, [(0.010975268, 36), (0.022946931, -82), (0.019877505, 39)], ANY,
            (&[2, 4], &[-124, -36, -53, 112, 58, 39, -2, -55]),
            (&[4], &[90, 114, -73, -66]),
            &[-128, -128, -21, 62, -128, -128, 8, -30]);
        check::<i8>(true, [(0.024389971, -37), (0.059863534, 0), (0.11478284, -32)], (0.0, f32::INFINITY),
            (&[2, 1], &[111, -17]),
            (&[3], &[70, -48, 127]),
            &[-32, 24, -32, -32, -3, -32]);
        check::<i16>(true, [(0.00011482056, 0), (6.218932e-05, 0), (0.00013384089, 0)], ANY,
            (&[2, 4], &[16155, 31395, -16706, -21695, 22624, -12971, 15847, -13783]),
            (&[4], &[3001, -27443, 10582, 27252]),
            &[12465, 32767, -19249, -31275, 18014, 1624, 8678, -24487]);
        check::<i16>(true, [(0.0014845069, 0), (0.0034852591, 0), (0.0028217677, 0)], (0.0, f32::INFINITY),
            (&[2, 1], &[12601, 3652]),
            (&[3], &[8266, -21222, -23356]),
            &[0, 32767, 32767, 0, 28133, 30769]);
    }

    #[test]
    fn near_the_real_sum() {
        for subtract in [false, true] {
            let sign = if subtract { -1.0 } else { 1.0 };
            let attributes = |scaling: &PairQuantization, dtype| words(Attributes::new(scaling, dtype, subtract).unwrap());
            check_nearest::<i8>(&I8, |scaling| attributes(scaling, DType::I8), |a, b| a + sign * b);
            check_nearest::<i16>(&I16, |scaling| attributes(scaling, DType::I16), |a, b| a + sign * b);
        }
    }

    #[test]
    fn agrees_with_the_formula() {
        for (scales, reals) in [
            ([(0.05, -7), (0.1, 120), (0.07, 3)], ANY),
            ([(0.5, 0), (0.5, -128), (0.25, 9)], (-3.0, 4.0)),
            ([(0.1, -128), (0.05, 5), (1e-8, 0)], ANY),
        ] {
            for subtract in [false, true] {
                let attributes = Attributes::new(&scaling::<i8>(scales, reals), DType::I8, subtract).unwrap();
                let Attributes { zero_points: [p, q], output, operands: [left, right], sum, .. } = attributes;
                check_each(&I8, &words(attributes), |a, b| {
                    let (a, b) = (left.twice((a - p) << 20), right.twice((b - q) << 20));
                    output.element(sum.twice(if subtract { a - b } else { a + b }))
                });
            }
        }
    }

    #[test]
    fn absurd_attributes_are_refused_or_harmless() {
        let x = Value::new(&[i8::MIN, 0, i8::MAX], &[3]);
        let good = words(Attributes::new(&scaling::<i8>([(1.0, 0); 3], ANY), DType::I8, false).unwrap());
        for (index, bad) in [(0, 128), (1, -129), (2, 128), (4, -129), (5, -1), (6, 31), (8, -32), (10, 31), (11, 2)] {
            let mut attributes = good.clone();
            attributes[index] = bad as u32;
            let index = if (5..11).contains(&index) { (index - 1) | 1 } else { index };
            assert_eq!(run(&I8, &attributes, &[&x, &x], &[]).0, Err(Error::Attribute { index: index as u8 }));
        }
        let wide = Value::new(&[i16::MIN, 0, i16::MAX], &[3]);
        let huge = Multiplier { value: i32::MAX, exponent: 30 };
        let output = Output { zero_point: 32767, least: -32768, greatest: 32767 };
        for zero_points in [[-32768, 32767], [32767, 32767]] {
            let attributes = Attributes { zero_points, output, operands: [huge; 2], sum: huge, subtract: 1 };
            run_every_way(&I16, &words(attributes), &[&wide, &wide]);
        }
        assert_eq!(run(&I8, &good[..11], &[&x, &x], &[]).0, Err(Error::Attribute { index: 0 }));
    }
}
