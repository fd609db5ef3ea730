//! Sine: `y = sin x`, for `x` in radians. Infinities give NaN. Element types: f32 and f64. Like `tf.math.sin`.

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
    OpDef { code: crate::ops::code::sin, name: "sin", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 1400, T::sin)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy · cos x`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "sin(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.mul(&of.inputs[0].cos()?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the sine of each element in radians, like `tf.math.sin`. Fails on integers.
    pub fn sin(&self) -> Result<Tensor> {
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
                (100.0, -0.506_365_66),
                (1e10, -0.487_506_03),
                (3e38, 0.874_904_9),
                (f32::INFINITY, f32::NAN),
                (f32::NEG_INFINITY, f32::NAN),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
