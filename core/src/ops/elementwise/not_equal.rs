//! Comparison: `y = (a != b)`, broadcast, as booleans. NaN differs from everything. Element types: f32, f64, integers and
//! booleans. Like `tf.math.not_equal`.

use crate::base::dtype::{Bool, Element};
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
    code: crate::ops::code::not_equal,
    name: "not_equal",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::comparison,
    in_place: &[],
};

fn run<T: Element>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::compare(call, |a: T, b: T| a != b)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, BOOL = Bool, I16 = i16);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(
    &DEF,
    "not_equal(a, b), broadcast, of the same element type",
    Gradient::None("the result is boolean, a step in both operands"),
);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns true where `self` differs from `other`, broadcast. NaN differs from everything. Like `tf.math.not_equal`.
    ///
    /// Fails if the shapes do not broadcast or the element types differ.
    pub fn not_equal(&self, other: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        check_comparison(&F32, |a, b| a != b);
    }
}
