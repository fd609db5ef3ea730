//! Step of gradient descent: `variable' = variable - learning_rate · gradient`. Element types: f32 and f64. Like
//! `keras.optimizers.SGD` without momentum.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};
use core::cell::Cell;

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::sgd_step, name: "sgd_step", inputs: (3, 3), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [variable, _, learning_rate] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    elementwise::float(0, inputs)?;
    elementwise::like_first(1, inputs)?;
    if learning_rate.dtype != variable.dtype {
        return Err(Error::DType { input: 2 });
    }
    elementwise::same_dims(2, &[], learning_rate.shape.dims())?;
    elementwise::same(inputs, attributes, outputs)
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let learning_rate = call.input(2)?.scalar::<T>();
    let sum = Cell::new(T::ZERO);
    elementwise::pairs(call, |variable: T, gradient| {
        let variable = variable.sub(learning_rate.mul(gradient));
        sum.set(sum.get().add(variable));
        variable
    })?;
    call.slice.finite = super::finite(sum.get());
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("ResourceApplyGradientDescent"),
    with_product: Some((1, &crate::ops::matmul_sgd::OP)),
    ..Op::elementwise(
        &DEF,
        "sgd_step(variable, gradient, learning_rate[]), all f32 or all f64",
        Gradient::Missing("an optimizer's step is the end of a training step"),
    )
};

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the variable `self` after a step of plain gradient descent: `self - learning_rate · gradient`.
    ///
    /// Fails unless `self` is f32 or f64, `gradient` has its type, and `learning_rate` is a scalar of the same element type.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let variable = Tensor::new(&device, &[1.0f32, 2.0], &[2])?;
    /// let gradient = Tensor::new(&device, &[2.0f32, -4.0], &[2])?;
    /// let stepped = variable.sgd_step(&gradient, &Tensor::scalar(&device, 0.5f32))?;
    /// assert_eq!(stepped.to_vec::<f32>()?, [0.0, 4.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn sgd_step(&self, gradient: &Tensor, learning_rate: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, gradient, learning_rate])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, floats, run, run_every_way};

    #[test]
    fn in_place_and_apart() {
        let rate = Value::new(&[0.1f32], &[]);
        run_every_way(&F32, &[], &[&floats(&[5, 7], 1), &floats(&[5, 7], 2), &rate]);
        run_every_way(&F32, &[], &[&floats(&[5], 1), &floats(&[5], 1), &rate]);
        run_every_way(&F32, &[], &[&floats(&[0], 1), &floats(&[0], 2), &rate]);
        let refused = run(&F32, &[], &[&floats(&[2], 1), &floats(&[2], 1), &floats(&[1], 1)], &[]).0;
        assert_eq!(refused, Err(Error::Rank { input: 2 }));
    }
}
