//! Gradient of [`sparse_softmax_cross_entropy`](crate::ops::sparse_softmax_cross_entropy) with respect to its logits
//! `x[…, classes]`: `dx = (softmax(x) - onehot(label)) · dloss`. The other inputs are `label[…]` and `dloss[…]`. Element types: f32
//! and f64, with i32 or i64 labels. A label that is not a class is an error.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::{elementwise, lanes};
use crate::ops::sparse_softmax_cross_entropy::{batch, check, label};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::sparse_softmax_cross_entropy_grad,
    name: "sparse_softmax_cross_entropy_grad",
    inputs: (3, 3),
    outputs: 1,
    infer,
    in_place: &[(0, 0)],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [logits, labels, dloss] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if dloss.dtype != logits.dtype {
        return Err(Error::DType { input: 2 });
    }
    elementwise::same_dims(2, batch(logits, labels)?.dims(), dloss.shape.dims())?;
    elementwise::same(inputs, attributes, outputs)
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let (labels, dloss) = (call.input(1)?, call.input(2)?.slice::<T>());
    let classes = call.input(0)?.dims().last().map_or(0, |&dim| dim as usize);
    let rows = call.rows(dloss.len(), 80 * classes + 60);
    if rows.start == 0 {
        check(&labels, classes)?;
        elementwise::copy(call)?;
    }
    let output = call.output()?.slice_mut::<T>();
    for line in rows {
        let x = output.get_mut(line * classes..).and_then(|x| x.get_mut(..classes));
        let (Some(x), Some(&scale)) = (x, dloss.get(line)) else { break };
        let (sum, label) = (lanes::exponentials(x, 1), label(&labels, line) as usize);
        for (class, x) in x.iter_mut().enumerate() {
            let share = x.div(sum);
            *x = if class == label { share.sub(T::ONE) } else { share }.mul(scale);
        }
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradients, for the upstream gradient `v` and the softmax `p`. The logits get `(v·dloss - Σ p·v·dloss) · p`,
/// dloss gets `Σ v·(p - onehot(label))`, and the labels get none.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::new(
    &DEF,
    "sparse_softmax_cross_entropy_grad(logits[…,classes], labels[…], dloss[…]), labels i32 or i64, the others all f32 or all f64",
    Gradient::Rule(grad),
);

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let [logits, labels, dloss] = of.inputs else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let upstream = of.dy()?;
    let dlogits = of.if_wanted(0, || {
        let mut column = *dloss.shape();
        column.push(1)?;
        let scaled = upstream.mul(&dloss.reshape(column.dims())?)?;
        let share = logits.softmax(-1)?;
        scaled.sub(&scaled.mul(&share)?.sum(&[-1], true)?)?.mul(&share)
    })?;
    let ddloss = of.if_wanted(2, || {
        let ones = dloss.like(1.0)?.broadcast_to(dloss.dims())?;
        upstream.mul(&logits.sparse_softmax_cross_entropy_grad(labels, &ones)?)?.sum(&[-1], false)
    })?;
    Ok([dlogits, None, ddloss].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the gradient of [`Tensor::sparse_softmax_cross_entropy`] with respect to the logits `self[…, classes]`, for the
    /// upstream gradient `dloss[…]`.
    ///
    /// Fails if the shapes or element types do not match. Fails with [`Error::IndexOutOfRange`] if a label is not a class.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let logits = Tensor::new(&device, &[0.0f32, 0.0], &[1, 2])?;
    /// let labels = Tensor::new(&device, &[1], &[1])?;
    /// let dloss = Tensor::new(&device, &[1.0f32], &[1])?;
    /// let dlogits = logits.sparse_softmax_cross_entropy_grad(&labels, &dloss)?;
    /// assert_eq!(dlogits.to_vec::<f32>()?, [0.5, -0.5]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn sparse_softmax_cross_entropy_grad(&self, labels: &Tensor, dloss: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, labels, dloss])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, floats, run, run_every_way};

    #[test]
    fn in_place_and_apart() {
        let labels = Value::new(&[0i64, 3, 2], &[3]);
        run_every_way(&F32, &[], &[&floats(&[3, 4], 1), &labels, &floats(&[3], 2)]);
        let nothing = Value::new::<i64>(&[], &[0]);
        run_every_way(&F32, &[], &[&floats(&[0, 4], 1), &nothing, &floats(&[0], 2)]);
    }

    #[test]
    fn labels_are_checked_before_anything_is_written() {
        let logits = floats(&[2, 3], 1);
        let inputs = [&logits, &Value::new(&[0, 3], &[2]), &floats(&[2], 2)];
        let (result, outputs) = run(&F32, &[], &inputs, &[(0, 0)]);
        assert_eq!(result, Err(Error::IndexOutOfRange { node: 0, position: 1, value: 3, limit: 3 }));
        assert_eq!(outputs, [logits]);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, device, tensor};
        let labels = crate::tensor::Tensor::new(device(), &[3, 0, 1, 2, 3, 3], &[2, 3]).unwrap();
        check_gradient(&OP, &[], &[tensor(&[2, 3, 4], 1), labels, tensor(&[2, 3], 2)]);
    }
}
