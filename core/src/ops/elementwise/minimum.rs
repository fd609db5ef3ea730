//! Minimum of two operands: `y = min(a, b)`, broadcast. The result is NaN if either is NaN, and b if they are equal. Element
//! types: f32, f64 and integers. Like `tf.math.minimum`.

use crate::base::dtype::Number;
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
    code: crate::ops::code::minimum,
    name: "minimum",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::broadcast,
    in_place: &[(0, 0), (1, 0)],
};

#[inline(always)]
pub(in crate::ops) fn smaller<T: Number>(a: T, b: T) -> T {
    if a >= b {
        b
    } else if b > a {
        a
    } else {
        a.add(b)
    }
}

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary::<T>(call, 8, smaller)
}

fn run_integers<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary_small::<T>(call, 5, smaller)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);
crate::ops::kernels!(run_integers: I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient. The smaller operand gets the upstream gradient. If both are equal, a gets it. If either is NaN, b gets
/// it. The gradient is summed over the axes along which the operand was broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "minimum(a, b), broadcast, of the same element type", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (a, b, zero) = (&of.inputs[0], &of.inputs[1], of.dy()?.like(0.0)?);
    let taken = a.less_equal(b)?;
    let da = of.if_wanted(0, || elementwise::unbroadcast(&taken.select(of.dy()?, &zero)?, a))?;
    let db = of.if_wanted(1, || elementwise::unbroadcast(&taken.select(&zero, of.dy()?)?, b))?;
    Ok([da, db].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the smaller of each pair of corresponding elements, broadcast, like `tf.math.minimum`. The result is NaN if either is NaN.
    ///
    /// Fails if the shapes do not broadcast or the element types differ.
    pub fn minimum(&self, other: &Tensor) -> Result<Tensor> {
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
                (1.0, 2.0, 1.0),
                (2.0, -1.0, -1.0),
                (0.0, -0.0, -0.0),
                (-0.0, 0.0, 0.0),
                (f32::NAN, 1.0, f32::NAN),
                (1.0, f32::NAN, f32::NAN),
                (f32::NEG_INFINITY, f32::INFINITY, f32::NEG_INFINITY),
            ],
        );
        for (a, b) in SHAPES {
            run_every_way(&F32, &[], &[&floats(a, 1), &floats(b, 2)]);
        }
    }
}
