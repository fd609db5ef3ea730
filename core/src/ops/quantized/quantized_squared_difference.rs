//! Square of the difference of quantised tensors, broadcast: `y = clamp(y₀ + m · (mₐ · 2⁷(a − a₀) − m_b · 2⁷(b − b₀))²)`. Element type: i8.
//!
//! Bits: each product with a multiplier is rounded twice, like in SQUARED_DIFFERENCE of TensorFlow Lite's reference kernels. `mₐ` and `m_b`
//! are the scales of a and b, divided by twice the larger one. `m` is the square of this divisor, divided by `2¹⁴` and the scale of y.

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
    /// Multiplier of the square.
    pub square: Multiplier,
}

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::quantized_squared_difference,
    name: "quantized_squared_difference",
    inputs: (2, 2),
    outputs: 1,
    infer,
    in_place: &[(0, 0), (1, 0)],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { zero_points, output, operands, square } = read_attributes(attributes)?;
    pair::check(inputs, zero_points, &output, &[operands[0], operands[1], square])?;
    if inputs.first().is_some_and(|a| a.dtype != DType::I8) {
        return Err(Error::DType { input: 0 });
    }
    elementwise::broadcast(inputs, &[], outputs)
}

/// Number of bits by which operands are shifted to the left.
const SHIFT: u32 = 7;

/// The numbers of the formula, for operands x and y.
#[derive(Clone, Copy)]
struct Numbers {
    zero_points: [i32; 2],
    multipliers: [Multiplier; 2],
    square: Multiplier,
    zero_point: i32,
}

impl Numbers {
    /// Returns an element without [`SmallMultiplier`]s. Only unusual scales need it.
    #[inline(never)]
    fn rare_element(&self, x: i8, y: i8) -> i8 {
        let term = |at: usize, x: i8| self.multipliers[at].twice((i32::from(x) - self.zero_points[at]) << SHIFT);
        let difference = term(0, x).wrapping_sub(term(1, y));
        i8::saturated(self.square.twice(difference.wrapping_mul(difference)).wrapping_add(self.zero_point))
    }
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points, output, operands, square } = call.attributes()?;
    let order = Order::new(call)?;
    let numbers = Numbers { zero_points: order.of(zero_points), multipliers: order.of(operands), square, zero_point: output.zero_point };
    let [p, q] = numbers.multipliers.map(|multiplier| SmallMultiplier::new(multiplier, SHIFT, 8));
    // The difference is below 2¹⁵, so its square is below 2³⁰.
    let square = SmallMultiplier::new(square, 0, 30).plus(output.zero_point);
    let exact = [p, q, square].iter().all(SmallMultiplier::is_exact);
    let [x_zero_point, y_zero_point] = numbers.zero_points;
    broadcast::rows(call, order, if exact { 50 } else { 105 }, &move |x: &mut [i8], y| {
        for (x, y) in x.iter_mut().zip(y) {
            *x = if exact {
                let difference = p.of(i32::from(*x) - x_zero_point) - q.of(i32::from(*y) - y_zero_point);
                i8::saturated(square.of(difference * difference))
            } else {
                numbers.rare_element(*x, *y)
            };
        }
        limit(x, [output.least, output.greatest]);
    })
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_squared_difference(a, b), broadcast, both i8", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the square of the difference of two quantised tensors, broadcast. It has the bits of TensorFlow Lite's reference kernel of
    /// SQUARED_DIFFERENCE.
    ///
    /// Fails unless both are i8, the shapes broadcast, the scales are positive and finite, and the zero points are elements.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let half = gradlet_core::Quantization { scale: 0.5, zero_point: 0 };
    /// let one = gradlet_core::Quantization { scale: 1.0, zero_point: -128 };
    /// let scaling = ops::PairQuantization { left: half, right: half, output: one, range: None };
    /// let a = Tensor::new(&device, &[1i8, 2, 40], &[3])?;
    /// let b = Tensor::new(&device, &[4i8], &[1])?;
    /// assert_eq!(a.quantized_squared_difference(&b, &scaling)?.to_vec::<i8>()?, [-126, -127, 127]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_squared_difference(&self, other: &Tensor, scaling: &PairQuantization) -> Result<Tensor> {
        Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes::new(scaling)?]), &[self, other])?.with_quantization(scaling.output)
    }
}

#[cfg(feature = "alloc")]
impl Attributes {
    fn new(scaling: &PairQuantization) -> Result<Attributes> {
        let [left, right] = [scaling.left.scale, scaling.right.scale];
        let twice = 2.0 * f64::from(if left < right { right } else { left });
        let unit = f64::from(1 << (2 * SHIFT)) * f64::from(scaling.output.scale);
        let (zero_points, output) = scaling.words(DType::I8)?;
        Ok(Attributes {
            zero_points,
            output,
            operands: [left, right].map(|scale| Multiplier::new(f64::from(scale) / twice)),
            square: Multiplier::new(twice * twice / unit),
        })
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::shape::Shape;
    use crate::ops::conv2d::tests::words;
    use crate::ops::quantized::pair::tests::{ANY, check_each, check_nearest, scaling};
    use crate::ops::shared::testing::{Value, run, run_every_way};

    #[test]
    fn near_the_real_square() {
        check_nearest::<i8>(&I8, |scaling| words(Attributes::new(scaling).unwrap()), |a, b| (a - b) * (a - b));
    }

    #[test]
    fn agrees_with_the_formula() {
        for (scales, reals) in [
            ([(0.05, -7), (0.1, 120), (0.07, 3)], ANY),
            ([(0.5, 0), (0.5, -128), (0.25, 9)], (-3.0, 4.0)),
            ([(0.1, -128), (0.1, 127), (1e-6, 0)], ANY),
        ] {
            let attributes = Attributes::new(&scaling::<i8>(scales, reals)).unwrap();
            let Attributes { zero_points: [p, q], output, operands: [left, right], square } = attributes;
            check_each(&I8, &words(attributes), |a, b| {
                let difference = left.twice((a - p) << SHIFT) - right.twice((b - q) << SHIFT);
                output.element(square.twice(difference * difference))
            });
        }
    }

    #[test]
    fn absurd_attributes_are_refused_or_harmless() {
        let x = Value::new(&[i8::MIN, 0, i8::MAX], &[3]);
        let good = words(Attributes::new(&scaling::<i8>([(1.0, 0); 3], ANY)).unwrap());
        for (index, bad) in [(0, 128), (1, -129), (2, 128), (3, -129), (4, 400), (5, -1), (6, 31), (8, -32), (9, -1i32)] {
            let mut attributes = good.clone();
            attributes[index] = bad as u32;
            let want = if index < 5 { index } else { (index - 1) / 2 * 2 + 1 };
            assert_eq!(run(&I8, &attributes, &[&x, &x], &[]).0, Err(Error::Attribute { index: want as u8 }));
        }
        let wide = TensorType::new(DType::I16, Shape::new(&[1]).unwrap());
        assert_eq!(DEF.output_types(&[wide; 2], &good).unwrap_err(), Error::DType { input: 0 });
        let greatest = Multiplier { value: i32::MAX, exponent: 30 };
        let output = Output { zero_point: 127, least: -128, greatest: 127 };
        let attributes = Attributes { zero_points: [-128, 127], output, operands: [greatest; 2], square: greatest };
        run_every_way(&I8, &words(attributes), &[&x, &x]);
    }
}
