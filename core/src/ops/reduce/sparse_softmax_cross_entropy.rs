//! Cross entropy of logits `x[…, classes]` and class labels `label[…]`: `loss = ln Σ exp(x - max x) - (x[label] - max x)`. Element
//! types: f32 and f64, with i32 or i64 labels. A label that is not a class is an error. Like
//! `tf.nn.sparse_softmax_cross_entropy_with_logits`.

use crate::base::dtype::{DType, Float};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::{Shape, TensorType};
use crate::base::view::TensorView;
use crate::ops::shared::{elementwise, lanes};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::sparse_softmax_cross_entropy,
    name: "sparse_softmax_cross_entropy",
    inputs: (2, 2),
    outputs: 1,
    infer,
    in_place: &[],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [logits, labels] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    elementwise::set(outputs, TensorType::new(logits.dtype, batch(logits, labels)?))
}

/// Returns the shape of the batch: the shape of the logits without the last axis, the classes. Fails unless the labels have this shape.
pub(in crate::ops) fn batch(logits: &TensorType, labels: &TensorType) -> Result<Shape> {
    if !logits.dtype.is_float() {
        return Err(Error::DType { input: 0 });
    }
    if !matches!(labels.dtype, DType::I32 | DType::I64) {
        return Err(Error::DType { input: 1 });
    }
    let (_, batch) = logits.shape.dims().split_last().ok_or(Error::Rank { input: 0 })?;
    elementwise::same_dims(1, batch, labels.shape.dims())?;
    Shape::new(batch)
}

/// Returns label `at`.
#[inline(never)]
pub(in crate::ops) fn label(labels: &TensorView<'_>, at: usize) -> i64 {
    let label =
        if labels.dtype() == DType::I32 { labels.slice::<i32>().get(at).map(|&x| x.into()) } else { labels.slice().get(at).copied() };
    label.unwrap_or(-1)
}

/// Fails with [`Error::IndexOutOfRange`] unless all labels are from 0 to below `classes`.
#[inline(never)]
pub(in crate::ops) fn check(labels: &TensorView<'_>, classes: usize) -> Result<()> {
    for position in 0..labels.elements() {
        let label = label(labels, position);
        if label < 0 || label >= classes as i64 {
            let value = label.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            return Err(Error::IndexOutOfRange { node: 0, position: Error::position(position), value, limit: Error::position(classes) });
        }
    }
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let (logits, labels) = (call.input(0)?, call.input(1)?);
    let classes = logits.dims().last().map_or(0, |&dim| dim as usize);
    let losses = call.output()?.data.len() / size_of::<T>();
    let rows = call.rows(losses, 70 * classes + 120);
    if rows.start == 0 {
        check(&labels, classes)?;
    }
    let (x, losses) = (logits.slice::<T>(), call.output()?.slice_mut::<T>());
    for line in rows {
        let Some(loss) = losses.get_mut(line) else { break };
        let x = x.get(line * classes..).and_then(|x| x.get(..classes)).unwrap_or_default();
        let shift = lanes::greatest(x.iter());
        let sum = x.iter().fold(T::ZERO, |sum, x| sum.add(x.sub(shift).exp()));
        let hit = x.get(label(&labels, line) as usize).copied().unwrap_or(T::ZERO);
        *loss = sum.ln().sub(hit.sub(shift));
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient. The logits get `(softmax(logits) - onehot(label)) · dloss`, and the labels get none.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("SparseSoftmaxCrossEntropyWithLogits"),
    ..Op::new(
        &DEF,
        "sparse_softmax_cross_entropy(logits[…,classes], labels[…]), where logits are f32 or f64, and labels are i32 or i64",
        Gradient::Rule(grad),
    )
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (logits, labels) = (&of.inputs[0], &of.inputs[1]);
    let dlogits = of.if_wanted(0, || logits.sparse_softmax_cross_entropy_grad(labels, of.dy()?))?;
    Ok([dlogits, None].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the cross entropy of each row of the logits `self[…, classes]` and its class label in `labels[…]`.
    ///
    /// Fails if the shapes do not match, or if the logits are integers or the labels are not. Fails with
    /// [`Error::IndexOutOfRange`] if a label is not a class. Like `tf.nn.sparse_softmax_cross_entropy_with_logits`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let logits = Tensor::new(&device, &[0.0f32, 0.0, 100.0, 0.0], &[2, 2])?;
    /// let labels = Tensor::new(&device, &[1, 0], &[2])?;
    /// let loss = logits.sparse_softmax_cross_entropy(&labels)?.to_vec::<f32>()?;
    /// assert!((loss[0] - core::f32::consts::LN_2).abs() < 1e-6 && loss[1] == 0.0);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn sparse_softmax_cross_entropy(&self, labels: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, labels])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, floats, numbers, run, run_every_way};

    #[test]
    fn labels_are_checked_before_anything_is_written() {
        let logits = floats(&[3, 4], 1);
        let check = |labels: &Value, position, value| {
            let (result, outputs) = run(&F32, &[], &[&logits, labels], &[]);
            assert_eq!(result, Err(Error::IndexOutOfRange { node: 0, position, value, limit: 4 }));
            assert_eq!(outputs[0].elements::<f32>(), [f32::from_bits(0xa5a5_a5a5); 3]);
        };
        check(&Value::new(&[0, 1, 4], &[3]), 2, 4);
        check(&Value::new(&[0, -1, 9], &[3]), 1, -1);
        check(&Value::new(&[1i64 << 40, 0, 0], &[3]), 0, i32::MAX);
        check(&Value::new(&[i64::MIN, 0, 0], &[3]), 0, i32::MIN);
    }

    #[test]
    fn slices_give_the_same_losses() {
        run_every_way(&F32, &[], &[&floats(&[5, 4], 1), &Value::new(&[3i64, 0, 1, 2, 3], &[5])]);
        run_every_way(&F64, &[], &[&Value::new(&numbers(&[2, 3], 1), &[2, 3]), &Value::new(&[2, 0], &[2])]);
    }

    #[test]
    fn odd_shapes() {
        let nothing = Value::new::<i32>(&[], &[0]);
        assert_eq!(run(&F32, &[], &[&floats(&[0, 4], 1), &nothing], &[]).0, Ok(()));
        assert_eq!(run(&F32, &[], &[&floats(&[0, 0], 1), &nothing], &[]).0, Ok(()));
        let refused = |dims: &[u32], labels: &Value| run(&F32, &[], &[&floats(dims, 1), labels], &[]).0;
        assert!(matches!(refused(&[1, 0], &Value::new(&[0], &[1])), Err(Error::IndexOutOfRange { limit: 0, .. })));
        assert_eq!(refused(&[], &Value::new(&[0], &[])), Err(Error::Rank { input: 0 }));
        assert_eq!(refused(&[2, 3], &Value::new(&[0], &[])), Err(Error::Rank { input: 1 }));
        assert_eq!(refused(&[2, 3], &Value::new(&[0], &[1])), Err(Error::Dimension { input: 1, axis: 0, want: 2, got: 1 }));
        assert_eq!(refused(&[1, 3], &Value::new(&[0.0f32], &[1])), Err(Error::DType { input: 1 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, device, tensor};
        let labels = crate::tensor::Tensor::new(device(), &[3i64, 0, 1, 2, 3, 3], &[2, 3]).unwrap();
        check_gradient(&OP, &[], &[tensor(&[2, 3, 4], 1), labels]);
    }
}
