//! Metrics, which accumulate a result over batches, with Keras's names, arguments, defaults and state. The state is in variables,
//! so metrics also work in traced functions. Predictions of 16-bit floats are compared in f32.
//!
//! To define a metric that is a mean over the samples, implement [`Measure`] and wrap it in a [`MeanOf`]. For any other metric,
//! implement [`Metric`].

mod accuracy;
mod auc;
mod confusion;
mod mean;
mod regression;

pub use accuracy::{
    Accuracy, BinaryAccuracy, CategoricalAccuracy, SparseCategoricalAccuracy, SparseTopKCategoricalAccuracy, TopKCategoricalAccuracy,
};
pub use auc::{Auc, Curve, SummationMethod};
pub use confusion::{FalseNegatives, FalsePositives, Precision, Recall, TrueNegatives, TruePositives};
pub use mean::{Mean, MeanOf, Measure, Sum};
pub use regression::{
    BinaryCrossentropy, CategoricalCrossentropy, CategoricalHinge, CosineSimilarity, Hinge, KLDivergence, LogCoshError, MeanAbsoluteError,
    MeanAbsolutePercentageError, MeanSquaredError, MeanSquaredLogarithmicError, Poisson, RootMeanSquaredError,
    SparseCategoricalCrossentropy, SquaredHinge,
};

/// Measures: the values of each sample that a `MeanOf` averages.
pub mod measures {
    pub use super::accuracy::measures::*;
    pub use super::regression::Cosine;
}

use crate::base::error::Result;
use crate::base::sync::ThreadSafe;
use crate::nn::layers::Module;
use crate::tensor::Tensor;
use crate::tensor::replicas::{VariableAggregation, VariableSynchronization};
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;

/// A metric. The caller updates it with each batch and may read its result at any time.
pub trait Metric: Module + ThreadSafe {
    /// Updates the state with a batch. `sample_weight` holds one weight for each sample; without it, every sample counts once.
    fn update_weighted(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor, sample_weight: Option<&Tensor>) -> Result<()>;

    /// Updates the state with an unweighted batch.
    fn update_state(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor) -> Result<()> {
        self.update_weighted(scope, y_true, y_pred, None)
    }

    /// Returns the result over all batches since the last reset.
    fn result(&self, scope: &dyn Scope) -> Result<Tensor>;

    /// Sets the state to zeros, so that earlier batches no longer count.
    fn reset_state(&self, scope: &dyn Scope) -> Result<()> {
        reset(self, scope)
    }
}

fn reset<M: Module + ?Sized>(module: &M, scope: &dyn Scope) -> Result<()> {
    module.variables().iter().filter(|variable| variable.is_built()).try_for_each(|variable| {
        let zeros = Tensor::zeros(&scope.device(), variable.tensor_type()?)?;
        scope.assign(variable, &zeros)
    })
}

/// Declares state that each replica counts by itself. Outside of the replicas, it is their sum.
fn summed(name: &str) -> Variable {
    Variable::untrained(name).synchronized(VariableSynchronization::OnRead).aggregated(VariableAggregation::Sum)
}

fn accumulate(scope: &dyn Scope, variable: &Variable, value: &Tensor) -> Result<()> {
    scope.assign(variable, &scope.read(variable)?.add(value)?)
}
