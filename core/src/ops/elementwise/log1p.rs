//! Natural logarithm of 1 + x: `y = ln(1 + x)`, without loss of precision near 0. -1 gives -∞, and smaller numbers give NaN.
//! Element types: f32 and f64. Like `tf.math.log1p`.

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
    OpDef { code: crate::ops::code::log1p, name: "log1p", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 74, T::log1p)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy / (1 + x)`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "log1p(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.div(&of.inputs[0].add_scalar(1.0)?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `ln(1 + x)` for each element `x`, without loss of precision near 0, like `tf.math.log1p`. -1 gives -∞, and smaller
    /// numbers give NaN. Fails on integers.
    pub fn log1p(&self) -> Result<Tensor> {
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
                (1.0, core::f32::consts::LN_2),
                (-0.999, -6.907_768_2),
                (-1.0, f32::NEG_INFINITY),
                (-2.0, f32::NAN),
                (f32::INFINITY, f32::INFINITY),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
