//! Means and sums.

use super::{Metric, accumulate, reset, summed};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::sync::ThreadSafe;
use crate::nn::layers::{Module, Visitor};
use crate::nn::losses::{Loss, same_rank};
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::vec::Vec;

/// Keras's `Mean`: the weighted mean of the values. The result is 0 before the first value.
///
/// ```
/// use gradlet_core::metrics::Mean;
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let mean = Mean::default();
/// mean.update_state(&scope, &Tensor::new(&scope.device(), &[1.0f32, 3.0], &[2])?, None)?;
/// mean.update_state(&scope, &Tensor::new(&scope.device(), &[5.0f32], &[1])?, None)?;
/// assert_eq!(mean.result(&scope)?.item::<f32>()?, 3.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Mean {
    total: Variable,
    count: Variable,
}

impl Default for Mean {
    fn default() -> Mean {
        Mean { total: summed("total"), count: summed("count") }
    }
}

impl Mean {
    fn build(&self, scope: &dyn Scope) -> Result<()> {
        let zero = Tensor::scalar(&scope.device(), 0.0f32);
        self.total.create(scope, &zero)?;
        self.count.create(scope, &zero)
    }

    /// Updates the state with values. Each weight belongs to one sample. If the values have more axes than the weights, the update
    /// averages over the additional axes.
    pub fn update_state(&self, scope: &dyn Scope, values: &Tensor, sample_weight: Option<&Tensor>) -> Result<()> {
        self.build(scope)?;
        let (values, weights) = samplewise(values, sample_weight, |x, axes| x.mean(axes, false))?;
        let count = match weights {
            Some(weights) => weights.sum(&[], false)?,
            None => Tensor::scalar(&scope.device(), values.dims().first().map_or(1.0, |&samples| samples as f32)),
        };
        accumulate(scope, &self.total, &values.sum(&[], false)?)?;
        accumulate(scope, &self.count, &count)
    }

    /// Returns the mean of all values since the last reset.
    pub fn result(&self, scope: &dyn Scope) -> Result<Tensor> {
        self.build(scope)?;
        scope.read(&self.total)?.divide_no_nan(&scope.read(&self.count)?)
    }

    /// Sets the state to zeros, so that earlier values no longer count.
    pub fn reset_state(&self, scope: &dyn Scope) -> Result<()> {
        reset(self, scope)
    }
}

impl Module for Mean {
    fn visit(&self, visitor: &mut dyn Visitor) {
        visitor.module("total", &self.total);
        visitor.module("count", &self.count);
    }
}

/// Keras's `Sum`: the weighted sum of the values.
#[derive(Debug)]
pub struct Sum {
    total: Variable,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum { total: summed("total") }
    }
}

impl Sum {
    fn build(&self, scope: &dyn Scope) -> Result<()> {
        self.total.create(scope, &Tensor::scalar(&scope.device(), 0.0f32))
    }

    /// Updates the state with values, each multiplied by the weight of its sample.
    pub fn update_state(&self, scope: &dyn Scope, values: &Tensor, sample_weight: Option<&Tensor>) -> Result<()> {
        self.build(scope)?;
        let (values, _) = samplewise(values, sample_weight, |x, axes| x.sum(axes, false))?;
        accumulate(scope, &self.total, &values.sum(&[], false)?)
    }

    /// Returns the sum of all values since the last reset.
    pub fn result(&self, scope: &dyn Scope) -> Result<Tensor> {
        self.build(scope)?;
        scope.read(&self.total)
    }

    /// Sets the state to zeros, so that earlier values no longer count.
    pub fn reset_state(&self, scope: &dyn Scope) -> Result<()> {
        reset(self, scope)
    }
}

impl Module for Sum {
    fn visit(&self, visitor: &mut dyn Visitor) {
        visitor.module("total", &self.total);
    }
}

/// Reduces `values` to one value for each sample, multiplied by its weight. Returns these values, and the weights of the samples if
/// `weights` is given. This is Keras's `reduce_to_samplewise_values`.
fn samplewise(
    values: &Tensor,
    weights: Option<&Tensor>,
    reduce: fn(&Tensor, &[i32]) -> Result<Tensor>,
) -> Result<(Tensor, Option<Tensor>)> {
    let from = |first: usize, x: &Tensor| -> Result<Tensor> {
        let axes: Vec<i32> = (first as i32..x.dims().len() as i32).collect();
        if axes.is_empty() { Ok(x.clone()) } else { reduce(x, &axes) }
    };
    let values = values.cast(DType::F32)?;
    let Some(weights) = weights else { return Ok((from(1, &values)?, None)) };
    let (values, weights) = same_rank(&values, &weights.cast(DType::F32)?)?;
    let values = from(weights.dims().len(), &values)?;
    let weights = weights.broadcast_to(values.dims())?;
    let values = values.mul(&weights)?;
    Ok((from(1, &values)?, Some(from(1, &weights)?)))
}

/// A measure: the values that a metric averages.
///
/// ```
/// use gradlet_core::metrics::{MeanOf, Measure, Metric};
/// use gradlet_core::{DType, Eager, Result, Scope, Tensor, ops};
///
/// /// How often a prediction is at most 0.5 off.
/// #[derive(Default)]
/// struct Near;
/// impl Measure for Near {
///     fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
///         let off = y_true.sub(y_pred)?.abs()?;
///         off.less_equal(&off.like(0.5)?)?.cast(DType::F32)
///     }
/// }
///
/// let scope = Eager::new(&ops::portable_cpu());
/// let near = MeanOf::new(Near);
/// let y_true = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
/// near.update_state(&scope, &y_true, &Tensor::new(&scope.device(), &[1.25f32, 3.0], &[2])?)?;
/// assert_eq!(near.result(&scope)?.item::<f32>()?, 0.5);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub trait Measure: ThreadSafe {
    /// Returns one or more values for each sample.
    fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor>;
}

/// Every loss is a measure: its values are the losses before the reduction.
impl<L: Loss> Measure for L {
    fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        self.losses(y_true, y_pred)
    }
}

/// The mean of a [`Measure`] over the samples, as a metric: Keras's `MeanMetricWrapper`.
#[derive(Debug, Default)]
pub struct MeanOf<M> {
    pub(super) measure: M,
    mean: Mean,
}

impl<M> MeanOf<M> {
    /// Creates the metric that averages `measure`.
    pub fn new(measure: M) -> MeanOf<M> {
        MeanOf { measure, mean: Mean::default() }
    }
}

impl<M> Module for MeanOf<M> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.mean.visit(visitor);
    }
}

impl<M: Measure> Metric for MeanOf<M> {
    fn update_weighted(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor, sample_weight: Option<&Tensor>) -> Result<()> {
        self.mean.update_state(scope, &self.measure.values(y_true, &y_pred.in_32_bits()?)?, sample_weight)
    }

    fn result(&self, scope: &dyn Scope) -> Result<Tensor> {
        self.mean.result(scope)
    }
}
