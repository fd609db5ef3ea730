//! Exponential function: `y = eˣ`. Element types: f32 and f64. Like `tf.math.exp`.

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
    OpDef { code: crate::ops::code::exp, name: "exp", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 66, T::exp)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy · y`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "exp(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.mul(&of.outputs[0]))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns e to the power of each element, like `tf.math.exp`. Fails on integers.
    pub fn exp(&self) -> Result<Tensor> {
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
                (1.0, core::f32::consts::E),
                (88.0, 1.651_636_3e38),
                (89.0, f32::INFINITY),
                (-104.0, 0.0),
                (f32::INFINITY, f32::INFINITY),
                (f32::NEG_INFINITY, 0.0),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
