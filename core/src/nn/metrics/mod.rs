//! Metrics: running results over batches, with Keras's names, arguments, defaults and state. Their state is in variables, so
//! they work in traced functions too.
//!
//! A custom metric that is the mean of something over the samples is a [`Measure`] in a [`MeanOf`]; any other implements
//! [`Metric`].

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

/// What the metrics that are means take the mean of.
pub mod measures {
    pub use super::accuracy::measures::*;
    pub use super::regression::Cosine;
}

use crate::base::error::Result;
use crate::base::sync::ThreadSafe;
use crate::nn::layers::Module;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;

/// A metric: updated with each batch, asked for its result at any time.
pub trait Metric: Module + ThreadSafe {
    /// Takes a batch in, with a weight for each sample if there are such.
    fn update_weighted(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor, sample_weight: Option<&Tensor>) -> Result<()>;

    /// Takes a batch in.
    fn update_state(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor) -> Result<()> {
        self.update_weighted(scope, y_true, y_pred, None)
    }

    /// The result over all batches since the last reset.
    fn result(&self, scope: &dyn Scope) -> Result<Tensor>;

    /// Forgets all batches: sets the state to zeros.
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

fn accumulate(scope: &dyn Scope, variable: &Variable, value: &Tensor) -> Result<()> {
    scope.assign(variable, &scope.read(variable)?.add(value)?)
}
