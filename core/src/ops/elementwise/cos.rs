//! Cosine: `y = cos x`, for `x` in radians. Infinities give NaN. Element types: f32 and f64. Like `tf.math.cos`.

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
    OpDef { code: crate::ops::code::cos, name: "cos", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 1400, T::cos)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `-dy · sin x`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "cos(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.neg()?.mul(&of.inputs[0].sin()?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the cosine of each element in radians, like `tf.math.cos`. Fails on integers.
    pub fn cos(&self) -> Result<Tensor> {
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
                (0.0, 1.0),
                (-0.0, 1.0),
                (100.0, 0.862_318_9),
                (1e10, 0.873_119_6),
                (3e38, -0.484_294_8),
                (f32::INFINITY, f32::NAN),
                (f32::NEG_INFINITY, f32::NAN),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
