//! Losses: Keras's, with its reductions. A custom one is a trait away.

use crate::error::{Error, Result};
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
            Some(weights) => losses.mul(&fit_rank(weights, losses.dims().len())?)?,
            None => losses,
        };
        match self.reduction() {
            Reduction::SumOverBatchSize => losses.mean(&[], false),
            Reduction::Sum => losses.sum(&[], false),
            Reduction::None => Ok(losses),
        }
    }
}

/// `x` with a last axis of size 1 more or less, where that gives it the rank wanted.
fn fit_rank(x: &Tensor, rank: usize) -> Result<Tensor> {
    match (x.dims(), x.dims().len()) {
        ([rest @ .., 1], own) if own == rank + 1 => x.reshape(rest),
        (dims, own) if own + 1 == rank => x.reshape(&[dims, &[1]].concat()),
        _ => Ok(x.clone()),
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
        let rank = y_pred.dims().len().checked_sub(1).ok_or(Error::Rank { input: 1 })?;
        y_pred.sparse_softmax_cross_entropy(&fit_rank(y_true, rank)?)
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
        let y_true = fit_rank(y_true, y_pred.dims().len())?;
        let difference = y_pred.sub(&y_true)?;
        difference.mul(&difference)?.mean(&[-1], false)
    }

    fn reduction(&self) -> Reduction {
        self.reduction
    }
}
