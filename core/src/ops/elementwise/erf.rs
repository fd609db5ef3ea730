//! Error function: `y = erf x`. Element types: f32 and f64. Like `tf.math.erf`.

use crate::base::dtype::Float;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::erf, name: "erf", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 130, T::erf)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `dy · 2/√π · e^(-x²)`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "erf(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let dx = || {
        let slope = of.inputs[0].square()?.neg()?.exp()?.mul_scalar(core::f64::consts::FRAC_2_SQRT_PI)?;
        of.dy()?.mul(&slope)
    };
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the error function of each element, like `tf.math.erf`. Fails on integers.
    pub fn erf(&self) -> Result<Tensor> {
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
                (0.3, 0.328_626_8),
                (1.0, 0.842_700_84),
                (3.0, 0.999_978),
                (-5.0, -1.0),
                (1e-30, 1.128_379_1e-30),
                (f32::INFINITY, 1.0),
                (f32::NEG_INFINITY, -1.0),
                (f32::NAN, f32::NAN),
            ],
        );
    }
}
