//! Reciprocal square root: `y = 1 / √x`. Negative numbers give NaN. Element types: f32 and f64. Like `tf.math.rsqrt`.

use crate::base::dtype::Float;
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
    OpDef { code: crate::ops::code::rsqrt, name: "rsqrt", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 85, |x: T| T::ONE.div(x.sqrt()))
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `-dy · y³ / 2`. It is 0 where dy is 0, for any y, like TensorFlow's `RsqrtGrad`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "rsqrt(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let y = &of.outputs[0];
    Ok([of.if_wanted(0, || y.mul_scalar(-0.5)?.mul(&y.square()?)?.multiply_no_nan(of.dy()?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the reciprocal square root of each element, like `tf.math.rsqrt`. Negative numbers give NaN. Fails on integers.
    pub fn rsqrt(&self) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        check_unary(
            &F32,
            &[
                (4.0, 0.5),
                (1e-30, 1e15),
                (0.0, f32::INFINITY),
                (-0.0, f32::NEG_INFINITY),
                (-1.0, f32::NAN),
                (f32::INFINITY, 0.0),
                (f32::NEG_INFINITY, f32::NAN),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
