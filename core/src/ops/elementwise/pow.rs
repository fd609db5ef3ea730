//! Power: `y = aᵇ`, broadcast. It is 1 for b = 0 and for a = 1, and NaN for a negative a with a fractional b. Integers wrap, and
//! negative exponents of integers are an error. Element types: f32, f64, i8, i32 and i64. Like `tf.math.pow`.

use crate::base::dtype::{Float, Number};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op, Refusal},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::pow, name: "pow", inputs: (2, 2), outputs: 1, infer: elementwise::broadcast, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary::<T>(call, 275, T::pow)
}

/// Computes powers of integers by repeated squaring. The number of steps is at most the number of bits of the exponent.
fn run_integers<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    let two = T::ONE.add(T::ONE);
    elementwise::binary_checked::<T>(call, 60, |mut base, mut exponent, position| {
        if exponent < T::ZERO {
            return Err(Error::NegativePower { node: 0, position });
        }
        let mut power = T::ONE;
        while exponent > T::ZERO {
            let (half, odd) = elementwise::quotient_remainder(exponent, two);
            power = if odd == T::ZERO { power } else { power.mul(base) };
            (base, exponent) = (base.mul(base), half);
        }
        Ok(power)
    })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);
crate::ops::kernels!(run_integers: I32 = i32, I64 = i64, I8 = i8, I16 = i16);

/// The op with its gradient: a gets `dy · b · aᵇ⁻¹`. b gets `dy · y · ln a`, and 0 where a is not above 0, as in TensorFlow.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { refusal: Refusal::Integers, ..Op::elementwise(&DEF, "pow(a, b), broadcast, of the same element type", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (a, b, dy) = (&of.inputs[0], &of.inputs[1], of.dy()?);
    let da = of.if_wanted(0, || elementwise::unbroadcast(&dy.mul(b)?.mul(&a.pow(&b.add_scalar(-1.0)?)?)?, a))?;
    let db = of.if_wanted(1, || {
        let log = a.greater(&a.like(0.0)?)?.select(a, &a.like(1.0)?)?.log()?;
        elementwise::unbroadcast(&dy.mul(&of.outputs[0])?.mul(&log)?, b)
    })?;
    Ok([da, db].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `self` to the power of `other`, broadcast, like `tf.math.pow`.
    ///
    /// Fails with [`Error::NegativePower`] if an integer has a negative exponent. Fails if the shapes do not broadcast or the
    /// element types differ.
    pub fn pow(&self, other: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        check_binary(
            &F32,
            &[
                (2.0, -1.0, 0.5),
                (-2.0, 3.0, -8.0),
                (4.0, 0.5, 2.0),
                (-1.0, 0.5, f32::NAN),
                (0.0, 0.0, 1.0),
                (0.0, -1.0, f32::INFINITY),
                (-0.0, -1.0, f32::NEG_INFINITY),
                (1.0, f32::NAN, 1.0),
                (f32::NAN, 0.0, 1.0),
                (f32::NAN, 1.0, f32::NAN),
                (-1.0, f32::INFINITY, 1.0),
                (0.5, f32::INFINITY, 0.0),
            ],
        );
    }
}
