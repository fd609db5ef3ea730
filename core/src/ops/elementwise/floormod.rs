//! Remainder with the sign of b: `y = a - b · ⌊a / b⌋`, broadcast. Element types: f32, f64 and integers. Division of integers by
//! 0 is an error. Like `tf.math.floormod`.

use crate::base::dtype::{Float, Number};
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op, Refusal},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::floormod,
    name: "floormod",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::broadcast,
    in_place: &[(0, 0)],
};

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary(call, 95, |a: T, b: T| {
        let remainder = a.rem(b);
        if elementwise::signs_differ(remainder, b) { remainder.add(b) } else { remainder }
    })
}

fn run_integers<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::divide(call, |a: T, b: T| {
        let (_, remainder) = elementwise::quotient_remainder(a, b);
        if elementwise::signs_differ(remainder, b) { remainder.add(b) } else { remainder }
    })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);
crate::ops::kernels!(run_integers: I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: a gets `dy`, and b gets `-dy · ⌊a / b⌋`. Each is summed over the axes along which the operand was
/// broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("FloorMod"),
    refusal: Refusal::Integers,
    ..Op::elementwise(&DEF, "floormod(a, b), broadcast, of the same element type", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (a, b, dy) = (&of.inputs[0], &of.inputs[1], of.dy()?);
    let da = of.if_wanted(0, || elementwise::unbroadcast(dy, a))?;
    let db = of.if_wanted(1, || elementwise::unbroadcast(&dy.mul(&a.floordiv(b)?.neg()?)?, b))?;
    Ok([da, db].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the remainder of the division `self / other` with the quotient rounded down, broadcast, like `tf.math.floormod`. The
    /// remainder has the sign of `other`.
    ///
    /// Fails with [`Error::DivisionByZero`](crate::Error::DivisionByZero) if an integer is divided by 0. Fails if the shapes do
    /// not broadcast or the element types differ.
    pub fn floormod(&self, other: &Tensor) -> Result<Tensor> {
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
                (-7.0, 2.0, 1.0),
                (7.0, -2.0, -1.0),
                (-6.0, 3.0, -0.0),
                (2.0, f32::NEG_INFINITY, f32::NEG_INFINITY),
                (-2.0, f32::INFINITY, f32::INFINITY),
                (2.0, f32::INFINITY, 2.0),
                (1.0, 0.0, f32::NAN),
                (f32::INFINITY, 2.0, f32::NAN),
                (f32::NAN, 1.0, f32::NAN),
                (5.3, 0.1, 1.117_587_1e-7),
            ],
        );
        let (a, b) = (Value::new(&[7, -7, 7, -7, 6, i32::MIN], &[6]), Value::new(&[2, 2, -2, -2, -3, -1], &[6]));
        assert_eq!(run_every_way(&I32, &[], &[&a, &b])[0].elements::<i32>(), [1, 1, -1, -1, 0, 0]);
        check_division(&I32);
    }
}
