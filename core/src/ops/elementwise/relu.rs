//! Rectified linear unit: `y = max(x, 0)`. NaN stays NaN. Element types: f32 and f64. Like `tf.nn.relu`.

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
    OpDef { code: crate::ops::code::relu, name: "relu", inputs: (1, 1), outputs: 1, infer: elementwise::same_float, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 4, |x: T| if x <= T::ZERO { T::ZERO } else { x })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: the upstream gradient where the result is above 0.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "relu(x), where x is f32 or f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    // Uses the result instead of x, so the result can be computed in x's memory.
    Ok([of.if_wanted(0, || of.dy()?.relu_grad(&of.outputs[0]))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `max(self, 0)`. NaN stays NaN.
    pub fn relu(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.maximum(&self.like(0.0)?);
        }
        Tensor::emit1(&OP, &[], &[self])
    }
}
