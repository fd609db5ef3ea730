//! Metrics that count right and wrong predictions: true and false positives, true and false negatives.

use super::{Metric, accumulate, summed};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::nn::layers::{Module, Visitor};
use crate::nn::losses::{EPSILON, same_rank};
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::vec::Vec;

/// Cell of the confusion matrix. A prediction above the threshold is positive, and any other is negative. A prediction is true if
/// the label agrees with it, and false otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    TruePositives,
    FalsePositives,
    TrueNegatives,
    FalseNegatives,
}

impl Cell {
    pub(super) fn variable(self) -> Variable {
        summed(match self {
            Cell::TruePositives => "true_positives",
            Cell::FalsePositives => "false_positives",
            Cell::TrueNegatives => "true_negatives",
            Cell::FalseNegatives => "false_negatives",
        })
    }
}

/// Options that decide which predictions count, and which of them are positive.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) thresholds: Vec<f64>,
    pub(super) top_k: Option<u32>,
    pub(super) class_id: Option<u32>,
}

/// Replacement for a prediction that is not among the `top_k` largest of its sample.
const LOWEST: f64 = -1e10;

impl Rules {
    /// Returns the thresholds. If none was given, returns 0.5, or with `top_k` the value [`LOWEST`]: only the `top_k` largest
    /// predictions of a sample exceed it.
    fn thresholds(&self) -> Result<Vec<f64>> {
        match (&*self.thresholds, self.top_k) {
            ([], None) => Ok([0.5].into()),
            ([], Some(_)) => Ok([LOWEST].into()),
            (given, _) if given.iter().all(|threshold| (0.0..=1.0).contains(threshold)) => Ok(given.into()),
            (given, _) => Err(Error::message(format!("thresholds must be between 0 and 1, not {given:?}"))),
        }
    }

    /// Creates the variables of `cells`, each a vector with one count for each threshold.
    fn build(&self, scope: &dyn Scope, cells: &[(Cell, &Variable)]) -> Result<()> {
        let zeros = Tensor::full(&scope.device(), 0.0f32, &[self.thresholds()?.len() as u32])?;
        cells.iter().try_for_each(|(_, variable)| variable.create(scope, &zeros))
    }

    /// Returns `result`, which has one element for each threshold. With a single threshold, returns it as a scalar.
    fn result(&self, result: Tensor) -> Result<Tensor> {
        if result.dims() == [1] { result.reshape(&[]) } else { Ok(result) }
    }

    fn update(
        &self,
        scope: &dyn Scope,
        cells: &[(Cell, &Variable)],
        [y_true, y_pred]: [&Tensor; 2],
        sample_weight: Option<&Tensor>,
    ) -> Result<()> {
        self.build(scope, cells)?;
        let (y_true, y_pred, weights) = paired(y_true, y_pred, sample_weight)?;
        let y_pred = match self.top_k {
            Some(k) => first(&y_pred, k)?,
            None => y_pred,
        };
        let (y_true, y_pred) = match self.class_id {
            Some(class) => (one_class(&y_true, class)?, one_class(&y_pred, class)?),
            None => (y_true, y_pred),
        };
        count(scope, cells, &self.thresholds()?, [&y_true, &y_pred], weights.as_ref())
    }
}

/// For each threshold, adds the weight of each prediction to the variable of the cell that the prediction belongs to. Without
/// weights, every prediction has the weight 1.
pub(super) fn count(
    scope: &dyn Scope,
    cells: &[(Cell, &Variable)],
    thresholds: &[f64],
    [y_true, y_pred]: [&Tensor; 2],
    weights: Option<&Tensor>,
) -> Result<()> {
    let label = y_true.cast(DType::Bool)?.reshape_open(&[-1])?;
    let positive = above(&y_pred.reshape_open(&[-1])?, thresholds)?;
    let weights = match weights {
        Some(weights) => weights.broadcast_to(y_pred.dims())?.reshape_open(&[-1])?,
        None => Tensor::scalar(&scope.device(), 1.0f32),
    };
    for (cell, variable) in cells {
        let right_label = if matches!(cell, Cell::TruePositives | Cell::FalseNegatives) { label.clone() } else { label.logical_not()? };
        let predicted =
            if matches!(cell, Cell::TruePositives | Cell::FalsePositives) { positive.clone() } else { positive.logical_not()? };
        let counted = predicted.logical_and(&right_label)?.select(&weights, &weights.like(0.0)?)?;
        accumulate(scope, variable, &counted.sum(&[1], false)?)?;
    }
    Ok(())
}

/// Returns booleans `[thresholds, predictions]`, which are true where the prediction is above the threshold.
fn above(y_pred: &Tensor, thresholds: &[f64]) -> Result<Tensor> {
    let last = thresholds.len() as f64 - 1.0;
    let column = |values: Vec<f32>| Tensor::new(&y_pred.device()?, &values, &[values.len() as u32, 1]);
    if !even(thresholds) {
        return y_pred.greater(&column(thresholds.iter().map(|&threshold| threshold as f32).collect())?);
    }
    // Like Keras, this rounds to the number of thresholds below the prediction, and compares that number instead of the prediction.
    let mut below = y_pred.clip_by_value(0.0, 1.0)?.mul_scalar(last)?.ceil()?;
    if thresholds.first().is_some_and(|&first| first < 0.0) {
        below = below.maximum(&below.like(1.0)?)?;
    }
    below.greater(&column((0..thresholds.len()).map(|index| index as f32).collect())?)
}

/// True if there are at least three thresholds, evenly spaced from 0 to 1.
fn even(thresholds: &[f64]) -> bool {
    let last = thresholds.len().saturating_sub(1) as f64;
    let near = |(index, &threshold): (usize, &f64)| {
        let wanted = index as f64 / last;
        libm::fabs(threshold - wanted) <= 2.0 * EPSILON + 1e-5 * wanted
    };
    thresholds.len() >= 3 && thresholds.iter().enumerate().all(near)
}

/// Returns labels, predictions and weights as f32. Labels and predictions get the same rank. Weights of a lower rank get a last
/// axis of size 1.
pub(super) fn paired(y_true: &Tensor, y_pred: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    let (y_true, y_pred) = same_rank(&y_true.cast(DType::F32)?, &y_pred.cast(DType::F32)?)?;
    let Some(weights) = weights else { return Ok((y_true, y_pred, None)) };
    let wide = [weights.dims(), &[1]].concat();
    let fits = wide.len() <= y_true.dims().len();
    let weights = weights.cast(DType::F32)?.reshape(if fits { &wide } else { weights.dims() })?;
    Ok((y_true, y_pred, Some(weights)))
}

/// Returns the column of `y[…, classes]` for one class, with a last axis of size 1.
fn one_class(y: &Tensor, class: u32) -> Result<Tensor> {
    match y.dims() {
        [outer @ .., classes] if !outer.is_empty() && class < *classes => {
            let begin = [&alloc::vec![0; outer.len()][..], &[class]].concat();
            let size = [&alloc::vec![-1; outer.len()][..], &[1]].concat();
            y.slice(&begin, &size)
        }
        _ => Err(Error::message(format!(
            "class_id {class} needs predictions of shape [samples, classes] with more than {class} classes, not {}",
            y.shape()
        ))),
    }
}

/// Keeps the `k` largest predictions of each sample and replaces the others by [`LOWEST`]. Among equal predictions, those with a
/// lower index are kept first.
fn first(y_pred: &Tensor, k: u32) -> Result<Tensor> {
    let classes = y_pred.shape().back(0).ok_or(Error::Rank { input: 1 })?;
    let (_, best) = y_pred.top_k(k)?;
    let kept = best.one_hot(classes, -1, DType::F32)?.sum(&[-2], false)?;
    let others = kept.like(1.0)?.sub(&kept)?.mul_scalar(LOWEST)?;
    y_pred.mul(&kept)?.add(&others)
}

macro_rules! counts {
    ($($name:ident: $what:literal;)*) => {$(
        #[doc = concat!("Keras's `", stringify!($name), "`: ", $what, ", each counted with its weight.")]
        #[doc = "The result is a scalar, or has one element for each threshold."]
        #[derive(Debug)]
        pub struct $name {
            rules: Rules,
            accumulator: Variable,
        }

        impl $name {
            /// Uses these thresholds, each from 0 to 1.
            pub fn thresholds(thresholds: &[f64]) -> $name {
                $name { rules: Rules { thresholds: thresholds.into(), ..Rules::default() }, ..$name::default() }
            }
        }

        impl Default for $name {
            /// Returns the metric with the threshold 0.5.
            fn default() -> $name {
                $name { rules: Rules::default(), accumulator: summed("accumulator") }
            }
        }

        impl Module for $name {
            fn visit(&self, visitor: &mut dyn Visitor) {
                visitor.module("accumulator", &self.accumulator);
            }
        }

        impl Metric for $name {
            fn update_weighted(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor, sample_weight: Option<&Tensor>) -> Result<()> {
                self.rules.update(scope, &[(Cell::$name, &self.accumulator)], [y_true, y_pred], sample_weight)
            }

            fn result(&self, scope: &dyn Scope) -> Result<Tensor> {
                self.rules.build(scope, &[(Cell::$name, &self.accumulator)])?;
                self.rules.result(scope.read(&self.accumulator)?)
            }
        }
    )*};
}

counts! {
    TruePositives: "the number of predictions above the threshold whose label is not 0";
    FalsePositives: "the number of predictions above the threshold whose label is 0";
    TrueNegatives: "the number of predictions not above the threshold whose label is 0";
    FalseNegatives: "the number of predictions not above the threshold whose label is not 0";
}

macro_rules! shares {
    ($($name:ident: $other:ident, $what:literal;)*) => {$(
        #[doc = concat!("Keras's `", stringify!($name), "`: ", $what, ".")]
        #[doc = "The result is a scalar, or has one element for each threshold. It is 0 where the denominator is 0."]
        #[derive(Debug)]
        pub struct $name {
            rules: Rules,
            hits: Variable,
            others: Variable,
        }

        impl $name {
            /// Uses these thresholds, each from 0 to 1.
            pub fn thresholds(mut self, thresholds: &[f64]) -> $name {
                self.rules.thresholds = thresholds.into();
                self
            }

            /// Counts only the `k` largest predictions of a sample as positive. If thresholds are set, these predictions must also
            /// exceed the threshold.
            pub fn top_k(mut self, k: u32) -> $name {
                self.rules.top_k = Some(k);
                self
            }

            /// Counts only the predictions of this class.
            pub fn class_id(mut self, class: u32) -> $name {
                self.rules.class_id = Some(class);
                self
            }

            fn cells(&self) -> [(Cell, &Variable); 2] {
                [(Cell::TruePositives, &self.hits), (Cell::$other, &self.others)]
            }
        }

        impl Default for $name {
            /// Returns the metric with the threshold 0.5, over all classes.
            fn default() -> $name {
                $name { rules: Rules::default(), hits: Cell::TruePositives.variable(), others: Cell::$other.variable() }
            }
        }

        impl Module for $name {
            fn visit(&self, visitor: &mut dyn Visitor) {
                self.cells().into_iter().for_each(|(_, variable)| visitor.module(variable.name(), variable));
            }
        }

        impl Metric for $name {
            fn update_weighted(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor, sample_weight: Option<&Tensor>) -> Result<()> {
                self.rules.update(scope, &self.cells(), [y_true, y_pred], sample_weight)
            }

            fn result(&self, scope: &dyn Scope) -> Result<Tensor> {
                self.rules.build(scope, &self.cells())?;
                let (hits, others) = (scope.read(&self.hits)?, scope.read(&self.others)?);
                self.rules.result(hits.divide_no_nan(&hits.add(&others)?)?)
            }
        }
    )*};
}

shares! {
    Precision: FalsePositives, "the share of the positive predictions that are right";
    Recall: FalseNegatives, "the share of the labels that are not 0 whose predictions are positive";
}
