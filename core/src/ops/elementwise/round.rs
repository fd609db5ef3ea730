//! Rounding: `y` is the integer nearest to `x`. Ties round to the even integer. Element types: f32 and f64. Like `tf.math.round`.

use crate::base::dtype::Float;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    base::dtype::DType,
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::round, name: "round", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 15, T::round_even)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "round(x), where x is f32 or f64", Gradient::None("a step: its slope is 0 but where it jumps"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the integer nearest to each element, like `tf.math.round`. Ties round to the even integer. Integers stay unchanged.
    pub fn round(&self) -> Result<Tensor> {
        if matches!(self.dtype(), DType::I8 | DType::U8 | DType::I16 | DType::I32 | DType::I64) {
            return Ok(self.clone());
        }
        Tensor::emit1(&OP, &[], &[self])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::*;

    #[test]
    fn values() {
        check_unary(
            &F32,
            &[
                (0.0, 0.0),
                (-0.0, -0.0),
                (f32::INFINITY, f32::INFINITY),
                (f32::NEG_INFINITY, f32::NEG_INFINITY),
                (f32::NAN, f32::NAN),
                (1e30, 1e30),
                (8388609.0, 8388609.0),
                (0.5, 0.0),
                (1.5, 2.0),
                (2.5, 2.0),
                (-0.5, -0.0),
                (-1.5, -2.0),
                (3.499_999_8, 3.0),
                (0.499_999_97, 0.0),
                (4_194_304.5, 4_194_304.0),
            ],
        );
    }
}
