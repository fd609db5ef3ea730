//! Absolute value: `y = |x|`. The least integer maps to itself. Element types: f32, f64, i8, i32 and i64. Like `tf.math.abs`.

use crate::base::dtype::{Float, Number};
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::abs, name: "abs", inputs: (1, 1), outputs: 1, infer: elementwise::same, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 1, T::abs)
}

fn run_integer<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 1, |x: T| if x < T::ZERO { T::ZERO.sub(x) } else { x })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);
crate::ops::kernels!(run_integer: I8 = i8, I32 = i32, I64 = i64, I16 = i16);

/// The op with its gradient: `dy · sign(x)`, which is 0 at 0.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "abs(x)", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.mul(&of.inputs[0].sign()?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the absolute value of each element, like `tf.math.abs`. The least integer maps to itself.
    pub fn abs(&self) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        check_unary(&F32, &[(-0.0, 0.0), (-1.5, 1.5), (2.0, 2.0), (f32::NEG_INFINITY, f32::INFINITY), (f32::NAN, f32::NAN)]);
        let y = run_every_way(&I32, &[], &[&Value::new(&[i32::MIN, -5, 0, 7], &[4])]);
        assert_eq!(y[0].elements::<i32>(), [i32::MIN, 5, 0, 7]);
    }
}
