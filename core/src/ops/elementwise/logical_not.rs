//! Logical NOT: `y = !x`. For booleans. Like `tf.math.logical_not`.

use crate::base::dtype::{Bool, DType};
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::logical_not, name: "logical_not", inputs: (1, 1), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    elementwise::boolean(0, inputs)?;
    elementwise::same(inputs, attributes, outputs)
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 3, |x: Bool| (!x.get()).into())
}

/// Portable kernel for bool.
pub const BOOL: Kernel = Kernel { def: &DEF, dtype: DType::Bool, run };

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "logical_not(x), where x is bool", Gradient::None("booleans have no gradient"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns true for each element that is false, and false for each that is true, like `tf.math.logical_not`. Fails if `self` is
    /// not boolean.
    pub fn logical_not(&self) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        let y = run_every_way(&BOOL, &[], &[&Value::new(&[Bool(0), Bool(1), Bool(7)], &[3])]);
        assert_eq!(y[0].elements::<Bool>(), [Bool(1), Bool(0), Bool(0)]);
    }
}
