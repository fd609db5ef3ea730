//! Exponential minus 1: `y = eˣ - 1`, without loss of precision near 0. Element types: f32 and f64. Like `tf.math.expm1`.

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
    OpDef { code: crate::ops::code::expm1, name: "expm1", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 72, T::expm1)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy · eˣ`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "expm1(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.mul(&of.inputs[0].exp()?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `eˣ - 1` for each element, without loss of precision near 0, like `tf.math.expm1`. Fails on integers.
    pub fn expm1(&self) -> Result<Tensor> {
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
                (1e-8, 1e-8),
                (1.0, 1.718_281_8),
                (-50.0, -1.0),
                (f32::INFINITY, f32::INFINITY),
                (f32::NEG_INFINITY, -1.0),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
