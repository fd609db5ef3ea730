//! Logical OR: `y` is true if a or b is true, broadcast. For booleans. Like `tf.math.logical_or`.

use crate::base::dtype::{Bool, DType};
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::logical_or,
    name: "logical_or",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::logical,
    in_place: &[(0, 0), (1, 0)],
};

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary_small(call, 3, |a: Bool, b: Bool| (a.get() | b.get()).into())
}

/// Portable kernel for bool.
pub const BOOL: Kernel = Kernel { def: &DEF, dtype: DType::Bool, run };

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "logical_or(a, b), broadcast, both bool", Gradient::None("booleans have no gradient"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns true where either operand is true, broadcast, like `tf.math.logical_or`. Fails if an operand is not boolean, or if
    /// the shapes cannot be broadcast together.
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        check_logical(&BOOL, |a, b| a | b);
    }
}
