//! Quantised vectors divided by their Euclidean norm, along the last axis: `y = 128 · (x − x₀) / √Σ (x − x₀)²`. The scale of y is 1/128,
//! and its zero point 0. Element type: i8.
//!
//! Bits: those of L2_NORMALIZATION of TensorFlow Lite's reference kernels. The inverse norm is a fixed-point number, and its product with
//! an element is rounded twice. Zeros stay zeros.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise::set;
use crate::ops::shared::fixed_point::{Multiplier, inverse_square_root};
use crate::ops::shared::lanes;
use crate::ops::shared::quantized::check_zero_point;
#[cfg(feature = "alloc")]
use crate::{base::quantization::Quantization, ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Zero point of x.
    pub zero_point: i32,
}

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::quantized_l2_normalize,
    name: "quantized_l2_normalize",
    inputs: (1, 1),
    outputs: 1,
    infer,
    in_place: &[(0, 0)],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { zero_point } = read_attributes(attributes)?;
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if x.dtype != DType::I8 {
        return Err(Error::DType { input: 0 });
    }
    check_zero_point(zero_point, x.dtype, 0)?;
    if x.shape.rank() == 0 {
        return Err(Error::Rank { input: 0 });
    }
    set(outputs, *x)
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_point } = call.attributes()?;
    let last = call.output()?.dims().len().saturating_sub(1) as u32;
    lanes::each(call, last, 40, |lane: &mut [i8], _| {
        let number = |x: i8| i32::from(x) - zero_point;
        let sum = lane.iter().fold(0i32, |sum, &x| sum.wrapping_add(number(x) * number(x)));
        let norm = inverse_square_root(sum.max(0));
        let norm = Multiplier { exponent: norm.exponent + 7, ..norm };
        lane.iter_mut().for_each(|x| *x = norm.twice(number(*x)).max(i8::MIN.into()).min(i8::MAX.into()) as i8);
    })
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_l2_normalize(x[..,n]), where x is i8", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the quantised vectors `[..,n]`, each divided by its Euclidean norm. The scale of the result is 1/128, and its zero point 0.
    /// It has the bits of TensorFlow Lite's reference kernel of L2_NORMALIZATION.
    ///
    /// Fails unless the elements are i8, the rank is at least 1, the scale is positive and finite, and the zero point is an element.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let half = gradlet_core::Quantization { scale: 0.5, zero_point: 1 };
    /// let x = Tensor::new(&device, &[4i8, -3, 1, 1], &[2, 2])?;
    /// assert_eq!(x.quantized_l2_normalize(half)?.to_vec::<i8>()?, [77, -102, 0, 0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_l2_normalize(&self, from: Quantization) -> Result<Tensor> {
        from.check(self.dtype())?;
        let attributes = Attributes { zero_point: from.zero_point };
        let to = Quantization { scale: 1.0 / 128.0, zero_point: 0 };
        Tensor::emit1(&OP, bytemuck::cast_slice(&[attributes]), &[self])?.with_quantization(to)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::shape::Shape;
    use crate::ops::quantized_conv2d::tests::integers;
    use crate::ops::shared::testing::{Value, run_every_way};
    use std::vec::Vec;

    #[test]
    fn near_the_real_vector() {
        for (lanes, n) in [(3u32, 5u32), (1, 200), (4, 1), (0, 3), (3, 0)] {
            let x: Vec<i8> = integers(&[lanes, n], 1, 127.0).iter().map(|&x| x as i8).collect();
            for zero_point in [0, -128, 127] {
                let y = run_every_way(&I8, &[zero_point as u32], &[&Value::new(&x, &[lanes, n])]);
                let y = y[0].elements::<i8>();
                for (x, y) in x.chunks(n.max(1) as usize).zip(y.chunks(n.max(1) as usize)) {
                    let real = |x: i8| f64::from(i32::from(x) - zero_point);
                    let norm = libm::sqrt(x.iter().map(|&x| real(x) * real(x)).sum());
                    for (&x, &y) in x.iter().zip(y) {
                        let want = (128.0 * real(x) / norm.max(1.0)).min(127.0);
                        assert!((f64::from(y) - want).abs() < 1.0, "{x}: {y}, not {want}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_it_refuses() {
        let refused = |zero_point: u32, dtype: DType, dims: &[u32]| {
            DEF.output_types(&[TensorType::new(dtype, Shape::new(dims).unwrap())], &[zero_point]).unwrap_err()
        };
        assert_eq!(refused(128, DType::I8, &[1]), Error::Attribute { index: 0 });
        assert_eq!(refused(0, DType::I8, &[]), Error::Rank { input: 0 });
        assert_eq!(refused(0, DType::I16, &[1]), Error::DType { input: 0 });
    }
}
