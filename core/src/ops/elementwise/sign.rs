//! Sign: `y` is -1, 0 or 1 where x is negative, zero or positive. NaN stays NaN. Element types: f32, f64, i8, i32 and i64. Like
//! `tf.math.sign`.

use crate::base::dtype::Number;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};
use core::cmp::Ordering;

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::sign, name: "sign", inputs: (1, 1), outputs: 1, infer: elementwise::same, in_place: &[(0, 0)] };

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 20, |x: T| match x.partial_cmp(&T::ZERO) {
        Some(Ordering::Less) => T::ZERO.sub(T::ONE),
        Some(Ordering::Equal) => T::ZERO,
        Some(Ordering::Greater) => T::ONE,
        None => x,
    })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I8 = i8, I32 = i32, I64 = i64, I16 = i16);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "sign(x)", Gradient::None("a step: its slope is 0 but where it jumps"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns -1, 0 or 1 for elements that are negative, zero or positive, like `tf.math.sign`. NaN stays NaN.
    pub fn sign(&self) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        check_unary(&F32, &[(0.0, 0.0), (-0.0, 0.0), (1e-30, 1.0), (-1e-30, -1.0), (f32::NEG_INFINITY, -1.0), (f32::NAN, f32::NAN)]);
    }
}
