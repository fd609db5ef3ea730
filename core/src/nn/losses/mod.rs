//! Losses with Keras's names, arguments, defaults and reductions. A custom loss implements [`Loss`].
//!
//! As in Keras, `y_true` and `y_pred` have the same shape, or one of them has an additional last axis of size 1. Losses are
//! computed in f32, or in f64 if `y_pred` is f64. They keep probabilities and divisors away from 0 by [`EPSILON`].

mod hinge;
mod probabilistic;
mod regression;

pub use hinge::{CategoricalHinge, Hinge, SquaredHinge};
pub use probabilistic::{
    BinaryCrossentropy, BinaryFocalCrossentropy, CategoricalCrossentropy, KLDivergence, Poisson, SparseCategoricalCrossentropy,
};
pub use regression::{
    CosineSimilarity, Huber, LogCosh, MeanAbsoluteError, MeanAbsolutePercentageError, MeanSquaredError, MeanSquaredLogarithmicError,
};

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::sync::ThreadSafe;
use crate::nn::type_name;
use crate::tensor::Tensor;
use crate::tensor::scope::{Scope, innermost};
use crate::trace::node_names::snake;

/// Keras's ε: a small number that keeps probabilities and divisors away from 0.
pub const EPSILON: f64 = 1e-7;

/// Reduction of the losses of all samples to one loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// The sum of the losses divided by their number, regardless of their weights. This is Keras's default.
    #[default]
    SumOverBatchSize,
    /// The sum of the losses.
    Sum,
    /// No reduction: one loss for each sample.
    None,
    /// The same as [`Reduction::SumOverBatchSize`].
    Mean,
    /// The sum of the losses divided by the sum of their weights.
    MeanWithSampleWeight,
}

/// A loss function.
///
/// ```
/// use gradlet_core::losses::{Loss, Reduction};
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
/// assert_eq!(MeanDifference.with_reduction(Reduction::None).call(&y, &y)?.dims(), [1]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub trait Loss: ThreadSafe {
    /// Returns the loss of each sample.
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor>;

    /// Returns a boolean mask in the shape of the losses, which is true for each loss that counts. Returns `None` if all losses
    /// count.
    fn mask(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Option<Tensor>> {
        let _ = (y_true, y_pred);
        Ok(None)
    }

    /// Returns the reduction of the losses.
    fn reduction(&self) -> Reduction {
        Reduction::default()
    }

    /// Returns the same loss with another reduction.
    fn with_reduction(self, reduction: Reduction) -> Reduced<Self>
    where
        Self: Sized,
    {
        Reduced { loss: self, reduction }
    }

    /// Returns the reduced loss, without weights.
    fn call(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        self.call_weighted(y_true, y_pred, None)
    }

    /// Returns the reduced loss, with each sample's loss multiplied by its weight. The weights are broadcast to the losses.
    fn call_weighted(&self, y_true: &Tensor, y_pred: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let scope = innermost(&[y_true, y_pred])?;
        let _named = scope.map(|scope| scope.name_scope(&snake(type_name::<Self>())));
        let y_pred = &y_pred.in_32_bits()?;
        let losses = self.losses(y_true, y_pred)?;
        let counted = match self.mask(y_true, y_pred)? {
            Some(mask) => Some(counted(&mask, &losses, self.reduction())?),
            None => None,
        };
        let weights = match (weights, counted) {
            (None, counted) => counted,
            (Some(weights), None) => Some(as_type(weights, losses.dtype())?),
            (Some(weights), Some(counted)) => {
                let (counted, weights) = same_rank(&counted, &as_type(weights, losses.dtype())?)?;
                Some(weights.mul(&counted)?)
            }
        };
        let Some(weights) = weights else { return reduce(losses, None, self.reduction()) };
        let (losses, weights) = same_rank(&losses, &weights)?;
        reduce(losses.mul(&weights)?, Some(&weights), self.reduction())
    }
}

/// A loss with another reduction, created by [`Loss::with_reduction`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Reduced<L> {
    loss: L,
    reduction: Reduction,
}

impl<L: Loss> Loss for Reduced<L> {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        self.loss.losses(y_true, y_pred)
    }

    fn mask(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Option<Tensor>> {
        self.loss.mask(y_true, y_pred)
    }

    fn reduction(&self) -> Reduction {
        self.reduction
    }
}

/// Converts `mask` to weights: 1 for losses that count, and 0 for all others. If `reduction` divides by the number of all losses, the
/// weights are scaled so that the mean over all losses is the mean over the losses that count.
fn counted(mask: &Tensor, losses: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let counted = mask.cast(losses.dtype())?;
    match reduction {
        Reduction::SumOverBatchSize | Reduction::Mean => {
            let all = counted.like(counted.shape().elements().unwrap_or(0) as f64)?;
            counted.mul(&all.divide_no_nan(&counted.sum(&[], false)?)?)
        }
        _ => Ok(counted),
    }
}

/// Applies `reduction` to the losses, which are already multiplied by their weights. As in Keras, losses that are a scalar or an
/// empty vector stay unchanged.
fn reduce(losses: Tensor, weights: Option<&Tensor>, reduction: Reduction) -> Result<Tensor> {
    let empty = losses.shape().elements() == Some(0);
    match (reduction, weights) {
        (Reduction::None, _) => Ok(losses),
        _ if matches!(losses.dims(), [] | [0]) => Ok(losses),
        (Reduction::Sum, _) => losses.sum(&[], false),
        (Reduction::MeanWithSampleWeight, Some(weights)) => losses.sum(&[], false)?.divide_no_nan(&weights.sum(&[], false)?),
        _ if empty => losses.sum(&[], false),
        _ => losses.mean(&[], false),
    }
}

/// Returns `a` and `b` with the same rank, if the rank of one of them is larger by a last axis of size 1. If the other one is a
/// vector, it gets such an axis, too. Otherwise, the additional axis is removed. All other pairs stay unchanged.
pub(crate) fn same_rank(a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    match (a.dims(), b.dims()) {
        (&[_, 1], &[n]) => Ok((a.clone(), b.reshape(&[n, 1])?)),
        (&[n], &[_, 1]) => Ok((a.reshape(&[n, 1])?, b.clone())),
        ([rest @ .., 1], other) if rest.len() == other.len() => Ok((a.reshape(rest)?, b.clone())),
        (other, [rest @ .., 1]) if rest.len() == other.len() => Ok((a.clone(), b.reshape(rest)?)),
        _ => Ok((a.clone(), b.clone())),
    }
}

/// Returns `y_true` and `y_pred` with the same rank and element type: f64 if `y_pred` is f64, and f32 otherwise.
pub(crate) fn alike(y_true: &Tensor, y_pred: &Tensor) -> Result<(Tensor, Tensor)> {
    let (y_true, y_pred) = same_rank(y_true, &wide(y_pred)?)?;
    Ok((as_type(&y_true, y_pred.dtype())?, y_pred))
}

/// Returns the predictions in f64 if they are f64, and in f32 otherwise.
fn wide(y_pred: &Tensor) -> Result<Tensor> {
    as_type(y_pred, if y_pred.dtype() == DType::F64 { DType::F64 } else { DType::F32 })
}

fn as_type(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == dtype { Ok(x.clone()) } else { x.cast(dtype) }
}
