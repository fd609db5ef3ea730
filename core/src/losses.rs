//! Losses: Keras's, with its reductions. A custom one is a trait away.

use crate::error::Result;
use crate::sync::ThreadSafe;
use crate::tensor::Tensor;

/// How the losses of the samples become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean: Keras's default.
    #[default]
    SumOverBatchSize,
    /// Their sum.
    Sum,
    /// As they are.
    None,
}

/// A loss function.
///
/// ```
/// use gradlet_core::losses::Loss;
/// use gradlet_core::{Result, Tensor, ops};
///
/// struct MeanDifference;
/// impl Loss for MeanDifference {
///     fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
///         y_true.sub(y_pred)?.mean(&[-1], false)
///     }
/// }
/// let y = Tensor::new(&ops::portable_cpu(), &[1.0f32, 3.0], &[1, 2])?;
/// assert_eq!(MeanDifference.call(&y, &y)?.item::<f32>()?, 0.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub trait Loss: ThreadSafe {
    /// The loss of each sample.
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor>;

    /// How they become one.
    fn reduction(&self) -> Reduction {
        Reduction::default()
    }

    /// The loss.
    fn call(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        self.call_weighted(y_true, y_pred, None)
    }

    /// The loss with a weight for each sample, broadcast to the losses. The mean divides by the number of losses, not by
    /// the sum of the weights, as in Keras.
    fn call_weighted(&self, y_true: &Tensor, y_pred: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let losses = self.losses(y_true, y_pred)?;
        let losses = match weights {
            Some(weights) => {
                let (losses, weights) = same_rank(&losses, weights)?;
                losses.mul(&weights)?
            }
            None => losses,
        };
        match self.reduction() {
            Reduction::SumOverBatchSize => losses.mean(&[], false),
            Reduction::Sum => losses.sum(&[], false),
            Reduction::None => Ok(losses),
        }
    }
}

/// `a` and `b` of one rank, where one has a last axis of size 1 more: a vector gets that axis too, anything else loses it.
fn same_rank(a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    match (a.dims(), b.dims()) {
        (&[_, 1], &[n]) => Ok((a.clone(), b.reshape(&[n, 1])?)),
        (&[n], &[_, 1]) => Ok((a.reshape(&[n, 1])?, b.clone())),
        ([rest @ .., 1], other) if rest.len() == other.len() => Ok((a.reshape(rest)?, b.clone())),
        (other, [rest @ .., 1]) if rest.len() == other.len() => Ok((a.clone(), b.reshape(rest)?)),
        _ => Ok((a.clone(), b.clone())),
    }
}

/// Keras's `SparseCategoricalCrossentropy(from_logits=True)`: −log softmax(y_pred)\[y_true\].
///
/// `y_true` are labels of i32 or i64 of shape `[…]`, `y_pred` logits of shape `[…, classes]`. A label out of range is an
/// error.
#[derive(Clone, Copy, Debug, Default)]
pub struct SparseCategoricalCrossentropy {
    /// How the losses become one.
    pub reduction: Reduction,
}

impl Loss for SparseCategoricalCrossentropy {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        match y_true.dims() {
            [rest @ .., 1] if y_true.dims().len() == y_pred.dims().len() => y_pred.sparse_softmax_cross_entropy(&y_true.reshape(rest)?),
            _ => y_pred.sparse_softmax_cross_entropy(y_true),
        }
    }

    fn reduction(&self) -> Reduction {
        self.reduction
    }
}

/// Keras's `MeanSquaredError`: the mean of (y_pred − y_true)² over the last axis.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeanSquaredError {
    /// How the losses become one.
    pub reduction: Reduction,
}

impl Loss for MeanSquaredError {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = same_rank(y_true, y_pred)?;
        let difference = y_pred.sub(&y_true)?;
        difference.mul(&difference)?.mean(&[-1], false)
    }

    fn reduction(&self) -> Reduction {
        self.reduction
    }
}
