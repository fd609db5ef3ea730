//! Gradient of [`relu`](crate::ops::relu), computed from the result `y` of relu: `dx = dy where y > 0, else 0`. Where y is NaN, dx
//! is 0. Element types: f32 and f64. Like TensorFlow's `ReluGrad`.

use crate::base::dtype::Float;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::relu_grad, name: "relu_grad", inputs: (2, 2), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    elementwise::float(0, inputs)?;
    elementwise::like_first(1, inputs)?;
    elementwise::same(inputs, attributes, outputs)
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::pairs(call, |dy: T, y: T| if y > T::ZERO { dy } else { T::ZERO })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: dy gets the upstream gradient where y is above 0, and y gets none.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "relu_grad(dy, y), of the same shape, both f32 or both f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.relu_grad(&of.inputs[1]))?, None].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `self` where `y` is above 0, and 0 elsewhere. This is the gradient of [`Tensor::relu`], where `y` is its result
    /// and `self` the upstream gradient. Fails on integers, or if the types differ.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let dy = Tensor::new(&device, &[1.0f32, 2.0, 3.0], &[3])?;
    /// let y = Tensor::new(&device, &[0.0f32, 0.5, 7.0], &[3])?;
    /// assert_eq!(dy.relu_grad(&y)?.to_vec::<f32>()?, [0.0, 2.0, 3.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn relu_grad(&self, y: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, y])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use crate::ops::shared::testing::{Value, run, run_every_way};

    #[test]
    fn in_place_and_apart() {
        let dy = Value::new(&[1.0f32, -2.0, f32::NAN, 4.0, 5.0], &[5]);
        let y = Value::new(&[0.0f32, 1.0, 2.0, f32::NAN, -0.0], &[5]);
        let dx = run_every_way(&F32, &[], &[&dy, &y])[0].elements::<f32>();
        assert_eq!((dx[0], dx[1], dx[3], dx[4]), (0.0, -2.0, 0.0, 0.0));
        assert!(dx[2].is_nan());
        run_every_way(&F32, &[], &[&y, &y]);
    }

    #[test]
    fn shapes_must_be_equal() {
        let value = |dims: &[u32]| Value::new(&[1.0f32; 4][..dims.iter().product::<u32>() as usize], dims);
        let refused = |y: &Value| run(&F32, &[], &[&value(&[2, 2]), y], &[]).0;
        assert_eq!(refused(&value(&[2])), Err(Error::Rank { input: 1 }));
        assert_eq!(refused(&value(&[2, 1])), Err(Error::Dimension { input: 1, axis: 1, want: 2, got: 1 }));
        assert_eq!(refused(&Value::new(&[1.0f64; 4], &[2, 2])), Err(Error::DType { input: 1 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        check_gradient(&OP, &[], &[tensor(&[3, 4], 1), tensor(&[3, 4], 2)]);
    }
}
