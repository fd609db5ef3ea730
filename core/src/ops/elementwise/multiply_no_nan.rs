//! Safe product: `y = a · b`, broadcast, and 0 where b is 0, even if a is NaN or infinite. Element types: f32 and f64. Like
//! `tf.math.multiply_no_nan`.

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
    code: crate::ops::code::multiply_no_nan,
    name: "multiply_no_nan",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::broadcast_float,
    in_place: &[(0, 0), (1, 0)],
};

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary(call, 6, |a: T, b: T| if b == T::ZERO { T::ZERO } else { a.mul(b) })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: that of a product, with `multiply_no_nan` for its multiplications. The gradient of each operand is
/// summed over the axes along which the operand was broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("MulNoNan"),
    ..Op::elementwise(&DEF, "multiply_no_nan(a, b), broadcast, both f32 or both f64", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (a, b, dy) = (&of.inputs[0], &of.inputs[1], of.dy()?);
    let da = of.if_wanted(0, || elementwise::unbroadcast(&dy.multiply_no_nan(b)?, a))?;
    let db = of.if_wanted(1, || elementwise::unbroadcast(&a.multiply_no_nan(dy)?, b))?;
    Ok([da, db].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `self * other`, broadcast, and 0 where `other` is 0, even if `self` is NaN or infinite. Like
    /// `tf.math.multiply_no_nan`.
    ///
    /// Fails on integers, if the shapes do not broadcast, or if the element types differ.
    pub fn multiply_no_nan(&self, other: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, other])
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
                (2.0, 3.0, 6.0),
                (f32::NAN, 0.0, 0.0),
                (f32::INFINITY, -0.0, 0.0),
                (0.0, f32::NAN, f32::NAN),
                (f32::INFINITY, 2.0, f32::INFINITY),
            ],
        );
    }
}
