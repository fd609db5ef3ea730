//! `y` = the nearest whole number, the even one of two. f32 and f64. As `tf.math.round`.

use super::elementwise;
use crate::dtype::Float;
use crate::error::Result;
use crate::op::{Call, Kernel, OpDef};
#[cfg(feature = "alloc")]
use crate::{
    dtype::DType,
    scope::{Gradient, Op},
    tensor::Tensor,
};

/// The op.
pub static DEF: OpDef =
    OpDef { code: super::code::round, name: "round", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, T::round_even)
}

super::kernels!(run: F32 = f32, F64 = f64);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op { def: &DEF, usage: "round(x), x of f32 or f64", grad: Gradient::None("a step: its slope is 0 but where it jumps") };

#[cfg(feature = "alloc")]
impl Tensor {
    /// The nearest whole number to each element, the even one of two, as `tf.math.round`; integers stay what they are.
    pub fn round(&self) -> Result<Tensor> {
        if matches!(self.dtype(), DType::I8 | DType::U8 | DType::I32 | DType::I64) {
            return Ok(self.clone());
        }
        Tensor::emit1(&OP, &[], &[self])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn values() {
        check_unary(&F32, &[(0.0, 0.0), (-0.0, -0.0), (f32::INFINITY, f32::INFINITY), (f32::NEG_INFINITY, f32::NEG_INFINITY), (f32::NAN, f32::NAN), (1e30, 1e30), (8388609.0, 8388609.0), (0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (-1.5, -2.0), (3.499_999_8, 3.0), (0.499_999_97, 0.0), (4_194_304.5, 4_194_304.0)]);
    }
}
