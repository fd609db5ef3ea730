//! Safe quotient: `y = a / b`, broadcast, and 0 where b is 0, for any a. Element types: f32 and f64. Like
//! `tf.math.divide_no_nan`.

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
    code: crate::ops::code::divide_no_nan,
    name: "divide_no_nan",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::broadcast_float,
    in_place: &[(0, 0)],
};

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary(call, 6, |a: T, b: T| if b == T::ZERO { T::ZERO } else { a.div(b) })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: that of a division, but 0 where b is 0. The gradient of each operand is summed over the axes along
/// which the operand was broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { tf_type: Some("DivNoNan"), ..Op::elementwise(&DEF, "divide_no_nan(a, b), broadcast, both f32 or both f64", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (a, b, dy) = (&of.inputs[0], &of.inputs[1], of.dy()?);
    let da = of.if_wanted(0, || elementwise::unbroadcast(&dy.divide_no_nan(b)?, a))?;
    let db = of.if_wanted(1, || elementwise::unbroadcast(&dy.mul(&a.neg()?.divide_no_nan(b)?.divide_no_nan(b)?)?, b))?;
    Ok([da, db].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `self / other`, broadcast, and 0 where `other` is 0, like `tf.math.divide_no_nan`. Integers are cast like in
    /// [`Tensor::divide`].
    ///
    /// Fails if the shapes do not broadcast or the element types differ.
    pub fn divide_no_nan(&self, other: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[&self.to_real()?, &other.to_real()?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        check_binary(
            &F32,
            &[
                (7.0, 2.0, 3.5),
                (-1.0, 0.0, 0.0),
                (0.0, -0.0, 0.0),
                (f32::NAN, 0.0, 0.0),
                (f32::INFINITY, 0.0, 0.0),
                (f32::NAN, 1.0, f32::NAN),
                (1.0, f32::NAN, f32::NAN),
                (1e30, 1e-30, f32::INFINITY),
            ],
        );
    }
}
