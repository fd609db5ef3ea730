//! Rounding up: `y` is the least integer that is not below `x`. Element types: f32 and f64. Like `tf.math.ceil`.

use crate::base::dtype::Float;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::ceil, name: "ceil", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 22, T::ceil)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "ceil(x), where x is f32 or f64", Gradient::None("a step: its slope is 0 but where it jumps"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns each element rounded up to an integer, like `tf.math.ceil`. Fails on integers.
    pub fn ceil(&self) -> Result<Tensor> {
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
                (0.5, 1.0),
                (-0.5, -0.0),
                (2.0, 2.0),
                (-2.5, -2.0),
            ],
        );
    }
}
