//! Cross entropies of logits, composed of other ops. For labels that are class numbers, there is an op:
//! [`sparse_softmax_cross_entropy`](crate::ops::sparse_softmax_cross_entropy).

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::{Backward, InputGradients, custom_gradient};

impl Tensor {
    /// Returns the cross entropy of the probabilities `labels` and the softmax of the logits `self`:
    /// `−Σ labels · log_softmax(self)` over `axis`. The result has no such axis.
    ///
    /// The gradient of the logits is `softmax(self) − labels`. This formula holds for labels with a sum of 1, but it is used for
    /// all labels. The gradient of the labels is `−log_softmax(self)`. Like `tf.nn.softmax_cross_entropy_with_logits`.
    ///
    /// Fails on integers, if the shapes differ, or if the axis is out of range.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let logits = Tensor::full(&device, 1.0f32, &[1, 2])?;
    /// let labels = Tensor::new(&device, &[0.25f32, 0.75], &[1, 2])?;
    /// let loss = logits.softmax_cross_entropy(&labels, -1)?.item::<f32>()?;
    /// assert!((loss - core::f32::consts::LN_2).abs() < 1e-6);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn softmax_cross_entropy(&self, labels: &Tensor, axis: i32) -> Result<Tensor> {
        same_type(self, labels)?;
        let forward = |x: &[&Tensor]| Ok(alloc::vec![x[1].mul(&x[0].log_softmax(axis)?)?.sum(&[axis], false)?.neg()?]);
        let rule = move |of: &Backward<'_>| -> Result<InputGradients> {
            let (logits, labels) = (&of.inputs[0], &of.inputs[1]);
            let dy = of.dy()?.expand_dims(axis)?;
            let dlogits = of.if_wanted(0, || dy.mul(&logits.softmax(axis)?.sub(labels)?))?;
            let dlabels = of.if_wanted(1, || dy.mul(&logits.log_softmax(axis)?)?.neg())?;
            Ok([dlogits, dlabels].into_iter().collect())
        };
        custom_gradient(&[self, labels], forward, rule)?.pop().ok_or(Error::Internal)
    }

    /// Returns the cross entropy of the probabilities `labels` and the sigmoid of the logits `self`, for each element:
    /// `softplus(self) − self · labels`. Like `tf.nn.sigmoid_cross_entropy_with_logits`.
    ///
    /// Fails on integers, or if the shapes differ.
    pub fn sigmoid_cross_entropy(&self, labels: &Tensor) -> Result<Tensor> {
        same_type(self, labels)?;
        self.softplus()?.sub(&self.mul(labels)?)
    }
}

fn same_type(logits: &Tensor, labels: &Tensor) -> Result<()> {
    let (want, got) = (logits.tensor_type(), labels.tensor_type());
    if got == want { Ok(()) } else { Err(Error::message(alloc::format!("expected labels of the logits' type {want}, but got {got}"))) }
}
