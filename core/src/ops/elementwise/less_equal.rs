//! Comparison: `y = (a <= b)`, broadcast, as booleans. The result is false if a or b is NaN. Element types: f32, f64 and integers.
//! Like `tf.math.less_equal`.

use crate::base::dtype::Number;
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
    code: crate::ops::code::less_equal,
    name: "less_equal",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::comparison,
    in_place: &[],
};

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::compare(call, |a: T, b: T| a <= b)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(
    &DEF,
    "less_equal(a, b), broadcast, of the same element type",
    Gradient::None("the result is boolean, a step in both operands"),
);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns true where `self` is less than or equal to `other`, broadcast, and false if either is NaN. Like
    /// `tf.math.less_equal`.
    ///
    /// Fails if the shapes do not broadcast or the element types differ.
    pub fn less_equal(&self, other: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, other])
    }

    /// Returns true where `self` is greater than or equal to `other`, broadcast, and false if either is NaN. Like
    /// `tf.math.greater_equal`.
    ///
    /// Fails if the shapes do not broadcast or the element types differ.
    pub fn greater_equal(&self, other: &Tensor) -> Result<Tensor> {
        other.less_equal(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        check_comparison(&F32, |a, b| a <= b);
    }
}
