//! Natural logarithm: `y = ln x`. 0 gives -∞, and negative numbers give NaN. Element types: f32 and f64. Like `tf.math.log`.

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
    OpDef { code: crate::ops::code::log, name: "log", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 66, T::ln)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy / x`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "log(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.div(&of.inputs[0]))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the natural logarithm of each element, like `tf.math.log`. 0 gives -∞, and negative numbers give NaN. Fails on
    /// integers.
    pub fn log(&self) -> Result<Tensor> {
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
                (1.0, 0.0),
                (1e-30, -69.077_55),
                (3e38, 88.596_85),
                (0.0, f32::NEG_INFINITY),
                (-0.0, f32::NEG_INFINITY),
                (-1.0, f32::NAN),
                (f32::INFINITY, f32::INFINITY),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
