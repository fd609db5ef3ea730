//! Remainder of the division a / b with the quotient rounded toward zero, broadcast. The remainder has the sign of a. Element
//! types: f32, f64 and integers. Division of integers by 0 is an error. Like `tf.truncatemod`.

use crate::base::dtype::{Float, Number};
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op, Refusal},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::truncatemod,
    name: "truncatemod",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::broadcast,
    in_place: &[(0, 0)],
};

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary(call, 75, T::rem)
}

fn run_integers<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::divide(call, |a: T, b: T| elementwise::quotient_remainder(a, b).1)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);
crate::ops::kernels!(run_integers: I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    refusal: Refusal::Integers,
    ..Op::elementwise(
        &DEF,
        "truncatemod(a, b), broadcast, of the same element type",
        Gradient::Missing("TensorFlow has none; floormod has one"),
    )
};

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the remainder of the division `self / other` with the quotient rounded toward zero, broadcast, like
    /// `tf.truncatemod`. The remainder has the sign of `self`.
    ///
    /// Fails with [`Error::DivisionByZero`](crate::Error::DivisionByZero) if an integer is divided by 0. Fails if the shapes do
    /// not broadcast or the element types differ.
    pub fn truncatemod(&self, other: &Tensor) -> Result<Tensor> {
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
                (7.0, 2.0, 1.0),
                (-7.0, 2.0, -1.0),
                (7.0, -2.0, 1.0),
                (2.0, f32::NEG_INFINITY, 2.0),
                (-2.0, f32::INFINITY, -2.0),
                (1.0, 0.0, f32::NAN),
                (f32::INFINITY, 2.0, f32::NAN),
                (f32::NAN, 1.0, f32::NAN),
            ],
        );
        let (a, b) = (Value::new(&[7, -7, 7, -7, 6, i32::MIN], &[6]), Value::new(&[2, 2, -2, -2, -3, -1], &[6]));
        assert_eq!(run_every_way(&I32, &[], &[&a, &b])[0].elements::<i32>(), [1, -1, 1, -1, 0, 0]);
        check_division(&I32);
    }
}
