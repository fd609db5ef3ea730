//! Product of quantised tensors, broadcast: `y = clamp(y₀ + m · (a − a₀) · (b − b₀))`, where `m` is `scale of a · scale of b / scale of y`.
//! Element types: i8 and i16. The product with `m` is rounded twice, like in MUL of TensorFlow Lite's reference kernels.

use crate::base::dtype::DType;
use crate::base::error::Result;
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
    /// Multiplier of the product.
    pub multiplier: Multiplier,
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_mul, name: "quantized_mul", inputs: (2, 2), outputs: 1, infer, in_place: &[(0, 0), (1, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { zero_points, output, multiplier } = read_attributes(attributes)?;
    pair::check(inputs, zero_points, &output, &[multiplier])?;
    elementwise::broadcast(inputs, &[], outputs)
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points, output, multiplier } = call.attributes()?;
    let order = Order::new(call)?;
    let [p, q] = order.of(zero_points);
    let scaled = SmallMultiplier::new(multiplier, 0, 16).plus(output.zero_point);
    let exact = T::DTYPE == DType::I8 && scaled.is_exact();
    broadcast::rows(call, order, 35, &move |x: &mut [T], y| {
        for (x, y) in x.iter_mut().zip(y) {
            let product = (x.number() - p).wrapping_mul(y.number() - q);
            *x = T::saturated(if exact { scaled.of(product) } else { multiplier.twice(product).wrapping_add(output.zero_point) });
        }
        limit(x, [output.least, output.greatest]);
    })
}

crate::ops::kernels!(run: I8 = i8, I16 = i16);

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_mul(a, b), broadcast, both i8 or both i16", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the product of two quantised tensors, broadcast. It has the bits of TensorFlow Lite's reference kernel of MUL.
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
    /// let b = Tensor::new(&device, &[4i8], &[1])?;
    /// assert_eq!(a.quantized_mul(&b, &scaling)?.to_vec::<i8>()?, [-127, -126, -28]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_mul(&self, other: &Tensor, scaling: &PairQuantization) -> Result<Tensor> {
        Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes::new(scaling, self.dtype())?]), &[self, other])?
            .with_quantization(scaling.output)
    }
}

#[cfg(feature = "alloc")]
impl Attributes {
    fn new(scaling: &PairQuantization, dtype: DType) -> Result<Attributes> {
        let (zero_points, output) = scaling.words(dtype)?;
        let [left, right, result] = [scaling.left, scaling.right, scaling.output].map(|quantization| f64::from(quantization.scale));
        Ok(Attributes { zero_points, output, multiplier: Multiplier::new(left * right / result) })
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::error::Error;
    use crate::ops::conv2d::tests::words;
    use crate::ops::quantized::pair::tests::{ANY, check_each, check_nearest, scaling};
    use crate::ops::shared::testing::{Value, run, run_every_way};

    type Operand<'a, T> = (&'a [u32], &'a [T]);

    fn check<T: Quantized>(scales: [(f32, i32); 3], reals: (f32, f32), a: Operand<'_, T>, b: Operand<'_, T>, want: &[T]) {
        let attributes = words(Attributes::new(&scaling::<T>(scales, reals), T::DTYPE).unwrap());
        let kernel = if T::DTYPE == DType::I8 { &I8 } else { &I16 };
        let y = run_every_way(kernel, &attributes, &[&Value::new(a.1, a.0), &Value::new(b.1, b.0)]);
        assert_eq!(y[0].elements::<T>(), want, "{scales:?}");
    }

    /// The results are those of TensorFlow 2.21's reference kernel of MUL.
    #[rustfmt::skip]
    #[test]
    fn same_bits_as_tensorflow() {
        check::<i8>([(0.046205793, -67), (0.094777234, 51), (0.6015511, 8)], ANY,
            (&[2, 4], &[-119, -110, -36, 35, -87, 11, 127, -92]),
            (&[4], &[-92, 119, -66, 95]),
            &[62, -13, -18, 41, 29, 47, -128, 0]);
        check::<i8>([(0.012340424, -29), (0.027492099, -58), (0.036085278, -69)], (0.0, f32::INFINITY),
            (&[2, 1], &[-128, -1]),
            (&[3], &[5, -108, -70]),
            &[-69, -22, -58, -52, -69, -69]);
        check::<i8>([(0.022258446, 22), (0.010709467, 69), (0.010447667, 11)], (0.0, 6.0),
            (&[8], &[-64, 35, -87, -45, -1, 36, -93, -38]),
            (&[8], &[-105, -95, -71, -48, 104, -27, -101, 105]),
            &[127, 11, 127, 127, 11, 11, 127, 11]);
        check::<i8>([(0.014910444, 36), (0.008662135, 92), (0.01257727, -20)], (-1.0, 1.0),
            (&[], &[104]),
            (&[5], &[-25, 51, 83, -111, 59]),
            &[-100, -49, -26, -100, -43]);
        check::<i16>([(0.0010594052, 0), (0.00074397103, 0), (0.0067619383, 0)], ANY,
            (&[2, 4], &[20080, 20118, -29536, -10093, 19783, 7224, 14328, 5941]),
            (&[4], &[19964, 21662, 17066, 10681]),
            &[32767, 32767, -32768, -12565, 32767, 18240, 28501, 7396]);
        check::<i16>([(0.0015297158, 0), (0.001412323, 0), (0.010056359, 0)], (0.0, f32::INFINITY),
            (&[2, 1], &[-15254, -30433]),
            (&[3], &[-7184, -13366, -142]),
            &[23543, 32767, 465, 32767, 32767, 928]);
        check::<i16>([(0.00026836953, 0), (0.00044875254, 0), (0.0012320197, 0)], (0.0, 6.0),
            (&[8], &[-30554, -17052, 19274, 8032, -13385, -9356, 28129, 15380]),
            (&[8], &[-8220, -13736, -24308, 19581, 8497, -5564, 12625, 3489]),
            &[4870, 4870, 0, 4870, 0, 4870, 4870, 4870]);
        check::<i16>([(0.0010233389, 0), (0.0015233345, 0), (0.009495835, 0)], (-1.0, 1.0),
            (&[], &[-12950]),
            (&[5], &[31416, -20637, -26473, 7647, -11474]),
            &[-105, 105, 105, -105, 105]);
    }

    #[test]
    fn near_the_real_product() {
        let attributes = |scaling: &PairQuantization, dtype| words(Attributes::new(scaling, dtype).unwrap());
        check_nearest::<i8>(&I8, |scaling| attributes(scaling, DType::I8), |a, b| a * b);
        check_nearest::<i16>(&I16, |scaling| attributes(scaling, DType::I16), |a, b| a * b);
    }

    #[test]
    fn agrees_with_the_formula() {
        for (scales, reals) in [
            ([(0.05, -7), (0.1, 120), (0.07, 3)], ANY),
            ([(0.5, 0), (1.0, -128), (1.0, 9)], (-3.0, 4.0)),
            ([(0.1, -128), (0.05, 5), (0.01, 0)], ANY),
        ] {
            let attributes = Attributes::new(&scaling::<i8>(scales, reals), DType::I8).unwrap();
            let Attributes { zero_points: [p, q], output, multiplier } = attributes;
            check_each(&I8, &words(attributes), |a, b| output.element(multiplier.twice((a - p) * (b - q))));
        }
    }

    #[test]
    fn absurd_attributes_are_refused_or_harmless() {
        let x = Value::new(&[i16::MIN, 0, i16::MAX], &[3]);
        let good = words(Attributes::new(&scaling::<i16>([(1.0, 0); 3], ANY), DType::I16).unwrap());
        for (index, bad) in [(0, 32768), (1, -32769), (2, 32768), (3, -32769), (4, 40000), (5, -1), (6, 31), (6, -32)] {
            let mut attributes = good.clone();
            attributes[index] = bad as u32;
            assert_eq!(run(&I16, &attributes, &[&x, &x], &[]).0, Err(Error::Attribute { index: index.min(5) as u8 }));
        }
        let output = Output { zero_point: 32767, least: -32768, greatest: 32767 };
        for zero_points in [[-32768, 32767], [32767, 32767]] {
            let attributes = Attributes { zero_points, output, multiplier: Multiplier { value: i32::MAX, exponent: 30 } };
            run_every_way(&I16, &words(attributes), &[&x, &x]);
        }
    }
}
