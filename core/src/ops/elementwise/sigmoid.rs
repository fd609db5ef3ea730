//! Sigmoid: `y = 1 / (1 + e⁻ˣ)`. Element types: f32 and f64. Like `tf.math.sigmoid`.

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
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::sigmoid,
    name: "sigmoid",
    inputs: (1, 1),
    outputs: 1,
    infer: elementwise::same_float,
    in_place: &[(0, 0)],
};

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 70, |x: T| T::ONE.div(T::ONE.add(x.neg().exp())))
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy · y · (1 - y)`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "sigmoid(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let y = &of.outputs[0];
    Ok([of.if_wanted(0, || of.dy()?.mul(y)?.mul(&y.like(1.0)?.sub(y)?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `1 / (1 + e⁻ˣ)` for each element, like `tf.math.sigmoid`. Fails on integers.
    pub fn sigmoid(&self) -> Result<Tensor> {
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
                (0.0, 0.5),
                (1.0, 0.731_058_6),
                (-20.0, 2.061_153_6e-9),
                (20.0, 1.0),
                (-90.0, 0.0),
                (f32::INFINITY, 1.0),
                (f32::NEG_INFINITY, 0.0),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
