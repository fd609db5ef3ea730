//! Square root: `y = √x`, correctly rounded. Negative numbers give NaN. Element types: f32 and f64. Like `tf.math.sqrt`.

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
    OpDef { code: crate::ops::code::sqrt, name: "sqrt", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 85, T::sqrt)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy / 2y`. It is 0 where dy is 0, for any y, like TensorFlow's `SqrtGrad`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "sqrt(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.outputs[0].like(0.5)?.div(&of.outputs[0])?.multiply_no_nan(of.dy()?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the square root of each element, like `tf.math.sqrt`. Negative numbers give NaN. Fails on integers.
    pub fn sqrt(&self) -> Result<Tensor> {
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
                (0.0, 0.0),
                (-0.0, -0.0),
                (4.0, 2.0),
                (1e-30, 1e-15),
                (-1.0, f32::NAN),
                (f32::INFINITY, f32::INFINITY),
                (f32::NEG_INFINITY, f32::NAN),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
