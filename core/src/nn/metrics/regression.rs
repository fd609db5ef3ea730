//! Metrics of numbers and probabilities. Most of them are means of losses.

use super::Metric;
use super::mean::{Mean, MeanOf, Measure};
use crate::base::error::Result;
use crate::nn::layers::{Module, Visitor};
use crate::nn::losses;
use crate::nn::losses::alike;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

macro_rules! means_of_losses {
    ($($name:ident = $loss:ident;)*) => {$(
        #[doc = concat!("Keras's `", stringify!($name), "`: the mean of [`losses::", stringify!($loss), "`].")]
        pub type $name = MeanOf<losses::$loss>;
    )*};
}

means_of_losses! {
    MeanSquaredError = MeanSquaredError;
    MeanAbsoluteError = MeanAbsoluteError;
    MeanAbsolutePercentageError = MeanAbsolutePercentageError;
    MeanSquaredLogarithmicError = MeanSquaredLogarithmicError;
    LogCoshError = LogCosh;
    Hinge = Hinge;
    SquaredHinge = SquaredHinge;
    CategoricalHinge = CategoricalHinge;
    KLDivergence = KLDivergence;
    Poisson = Poisson;
    BinaryCrossentropy = BinaryCrossentropy;
    CategoricalCrossentropy = CategoricalCrossentropy;
    SparseCategoricalCrossentropy = SparseCategoricalCrossentropy;
}

/// Keras's metric `CosineSimilarity`: the mean cosine of the angle between `y_true` and `y_pred` along an axis.
pub type CosineSimilarity = MeanOf<Cosine>;

/// Measure: the cosine of the angle between `y_true` and `y_pred`. This is [`losses::CosineSimilarity`] without its minus sign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cosine(losses::CosineSimilarity);

impl CosineSimilarity {
    /// Creates the metric for vectors along this axis. `CosineSimilarity::default()` uses the last axis.
    pub fn axis(axis: i32) -> CosineSimilarity {
        MeanOf::new(Cosine(losses::CosineSimilarity::default().axis(axis)))
    }
}

impl Measure for Cosine {
    fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        self.0.cosine(y_true, y_pred)
    }
}

/// Keras's `RootMeanSquaredError`: the square root of the mean of (y_pred − y_true)².
#[derive(Debug, Default)]
pub struct RootMeanSquaredError(Mean);

impl Module for RootMeanSquaredError {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.0.visit(visitor);
    }
}

impl Metric for RootMeanSquaredError {
    fn update_weighted(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor, sample_weight: Option<&Tensor>) -> Result<()> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        self.0.update_state(scope, &y_pred.sub(&y_true)?.square()?, sample_weight)
    }

    fn result(&self, scope: &dyn Scope) -> Result<Tensor> {
        self.0.result(scope)?.sqrt()
    }
}
