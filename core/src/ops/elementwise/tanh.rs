//! Hyperbolic tangent: `y = tanh x`. Element types: f32 and f64. Like `tf.math.tanh`.

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
    OpDef { code: crate::ops::code::tanh, name: "tanh", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 120, T::tanh)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy · (1 - y²)`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "tanh(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let y = &of.outputs[0];
    Ok([of.if_wanted(0, || of.dy()?.mul(&y.like(1.0)?.sub(&y.square()?)?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the hyperbolic tangent of each element, like `tf.math.tanh`. Fails on integers.
    pub fn tanh(&self) -> Result<Tensor> {
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
                (0.5, 0.462_117_17),
                (1e-5, 1e-5),
                (10.0, 1.0),
                (f32::INFINITY, 1.0),
                (f32::NEG_INFINITY, -1.0),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
