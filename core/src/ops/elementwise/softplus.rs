//! Softplus: `y = ln(1 + eˣ)`, computed as `max(x, 0) + log1p(e^-|x|)` to avoid overflow. Element types: f32 and f64. Like
//! `tf.math.softplus`.

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
    code: crate::ops::code::softplus,
    name: "softplus",
    inputs: (1, 1),
    outputs: 1,
    infer: elementwise::same_float,
    in_place: &[(0, 0)],
};

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 140, softplus::<T>)
}

#[inline(always)]
fn softplus<T: Float>(x: T) -> T {
    let above = if x < T::ZERO { T::ZERO } else { x };
    above.add(x.abs().neg().exp().log1p())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy · sigmoid(x)`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "softplus(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.mul(&of.inputs[0].sigmoid()?))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `ln(1 + eˣ)` for each element, like `tf.math.softplus`. Fails on integers.
    pub fn softplus(&self) -> Result<Tensor> {
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
                (0.0, core::f32::consts::LN_2),
                (30.0, 30.0),
                (-30.0, 9.357_623e-14),
                (15.5, 15.5),
                (-15.5, 1.855_391_4e-7),
                (f32::INFINITY, f32::INFINITY),
                (f32::NEG_INFINITY, 0.0),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
