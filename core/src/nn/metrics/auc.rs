//! The area under a curve.

use super::Metric;
use super::confusion::{Cell, count, paired};
use crate::base::error::{Error, Result};
use crate::nn::layers::{Module, Visitor};
use crate::nn::losses::EPSILON;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::vec::Vec;

/// Curve whose area is measured. Each threshold contributes one point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curve {
    /// The receiver operating characteristic: the share of the positives that are predicted positive, plotted against the share of
    /// the negatives that are predicted positive.
    #[default]
    Roc,
    /// Precision, plotted against recall.
    Pr,
}

/// Rule that estimates the area between two neighbouring thresholds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SummationMethod {
    /// Uses the mean of the two heights. For the precision-recall curve, uses the interpolation of Davis and Goadrich (2006).
    #[default]
    Interpolation,
    /// Uses the larger of the two heights.
    Majoring,
    /// Uses the smaller of the two heights.
    Minoring,
}

/// Keras's `AUC`: the area under the ROC curve or the precision-recall curve. By default the curve is the ROC curve, and the area
/// is estimated at 200 thresholds.
///
/// ```
/// use gradlet_core::metrics::{Auc, Metric};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let auc = Auc::default();
/// let tensor = |values: &[f32; 4]| Tensor::new(&scope.device(), values, &[4]);
/// auc.update_state(&scope, &tensor(&[0.0, 0.0, 1.0, 1.0])?, &tensor(&[0.1, 0.4, 0.35, 0.8])?)?;
/// assert_eq!(auc.result(&scope)?.item::<f32>()?, 0.75);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Auc {
    curve: Curve,
    summation_method: SummationMethod,
    /// The user's choice of thresholds between 0 and 1. [`Auc::all_thresholds`] adds one at each end.
    inner: Inner,
    from_logits: bool,
    cells: [(Cell, Variable); 4],
}

/// Choice of the thresholds.
#[derive(Debug)]
enum Inner {
    /// This many thresholds, evenly spaced from 0 to 1, both ends included.
    Even(u32),
    Given(Vec<f64>),
}

impl Default for Auc {
    fn default() -> Auc {
        let cells = [Cell::TruePositives, Cell::FalsePositives, Cell::TrueNegatives, Cell::FalseNegatives];
        Auc {
            curve: Curve::Roc,
            summation_method: SummationMethod::Interpolation,
            inner: Inner::Even(200),
            from_logits: false,
            cells: cells.map(|cell| (cell, cell.variable())),
        }
    }
}

impl Auc {
    /// Sets the curve (default [`Curve::Roc`]).
    pub fn curve(self, curve: Curve) -> Auc {
        Auc { curve, ..self }
    }

    /// Sets the rule that estimates the area (default [`SummationMethod::Interpolation`]).
    pub fn summation_method(self, summation_method: SummationMethod) -> Auc {
        Auc { summation_method, ..self }
    }

    /// Uses `count` thresholds, evenly spaced from 0 to 1. `count` must be at least 2; the default is 200.
    pub fn num_thresholds(self, count: u32) -> Auc {
        Auc { inner: Inner::Even(count), ..self }
    }

    /// Uses these thresholds between 0 and 1, and also 0 and 1 themselves.
    pub fn thresholds(self, thresholds: &[f64]) -> Auc {
        Auc { inner: Inner::Given(thresholds.into()), ..self }
    }

    /// Sets whether predictions are logits rather than probabilities (default false).
    pub fn from_logits(self, from_logits: bool) -> Auc {
        Auc { from_logits, ..self }
    }

    /// Returns all thresholds in increasing order. The first is slightly below 0 and the last slightly above 1.
    fn all_thresholds(&self) -> Result<Vec<f64>> {
        let mut inner = match &self.inner {
            &Inner::Even(count) if count < 2 => return Err(Error::message(format!("num_thresholds must be more than 1, not {count}"))),
            &Inner::Even(count) => (1..count - 1).map(|index| f64::from(index) / f64::from(count - 1)).collect(),
            Inner::Given(thresholds) => thresholds.clone(),
        };
        inner.sort_by(f64::total_cmp);
        Ok([&[-EPSILON], &*inner, &[1.0 + EPSILON]].concat())
    }

    fn cells(&self) -> [(Cell, &Variable); 4] {
        self.cells.each_ref().map(|(cell, variable)| (*cell, variable))
    }

    fn build(&self, scope: &dyn Scope) -> Result<Vec<f64>> {
        let thresholds = self.all_thresholds()?;
        let zeros = Tensor::full(&scope.device(), 0.0f32, &[thresholds.len() as u32])?;
        self.cells.iter().try_for_each(|(_, variable)| variable.create(scope, &zeros))?;
        Ok(thresholds)
    }
}

impl Module for Auc {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.cells.iter().for_each(|(_, variable)| visitor.module(variable.name(), variable));
    }
}

impl Metric for Auc {
    fn update_weighted(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor, sample_weight: Option<&Tensor>) -> Result<()> {
        let thresholds = self.build(scope)?;
        let (y_true, y_pred, weights) = paired(y_true, y_pred, sample_weight)?;
        let y_pred = if self.from_logits { y_pred.sigmoid()? } else { y_pred };
        count(scope, &self.cells(), &thresholds, [&y_true, &y_pred], weights.as_ref())
    }

    fn result(&self, scope: &dyn Scope) -> Result<Tensor> {
        self.build(scope)?;
        let read = |index: usize| scope.read(&self.cells[index].1);
        let (tp, fp, tn, fn_) = (read(0)?, read(1)?, read(2)?, read(3)?);
        let share = |part: &Tensor, rest: &Tensor| part.divide_no_nan(&part.add(rest)?);
        let (x, y) = match (self.curve, self.summation_method) {
            (Curve::Roc, _) => (share(&fp, &tn)?, share(&tp, &fn_)?),
            (Curve::Pr, SummationMethod::Interpolation) => return interpolated_precision(&tp, &fp, &fn_),
            (Curve::Pr, _) => (share(&tp, &fn_)?, share(&tp, &fp)?),
        };
        let (x, [left, right]) = (step(&x)?, ends(&y)?);
        let heights = match self.summation_method {
            SummationMethod::Interpolation => left.add(&right)?.mul_scalar(0.5)?,
            SummationMethod::Majoring => left.maximum(&right)?,
            SummationMethod::Minoring => left.minimum(&right)?,
        };
        x.mul(&heights)?.sum(&[], false)
    }
}

/// Returns all elements of the vector `x` but the last, and all elements but the first.
fn ends(x: &Tensor) -> Result<[Tensor; 2]> {
    let count = i64::from(x.dims().first().copied().unwrap_or(0)) - 1;
    Ok([x.slice(&[0], &[count])?, x.slice(&[1], &[count])?])
}

/// Returns each element of the vector `x` minus the next element. The result is one element shorter.
fn step(x: &Tensor) -> Result<Tensor> {
    let [left, right] = ends(x)?;
    left.sub(&right)
}

/// Returns the area under the precision-recall curve from the true positives, false positives and false negatives at each
/// threshold. Between two thresholds, the number of true positives is interpolated linearly in the number of false positives.
fn interpolated_precision(tp: &Tensor, fp: &Tensor, fn_: &Tensor) -> Result<Tensor> {
    let positives = tp.add(fp)?;
    let (zero, one) = (tp.like(0.0)?, tp.like(1.0)?);
    let (grown, [before, after]) = (step(tp)?, ends(&positives)?);
    let slope = grown.divide_no_nan(&step(&positives)?.maximum(&zero)?)?;
    let [_, hits] = ends(tp)?;
    let intercept = hits.sub(&slope.mul(&after)?)?;
    let both = before.greater(&zero)?.logical_and(&after.greater(&zero)?)?;
    let ratio = both.select(&before.divide_no_nan(&after.maximum(&zero)?)?, &one)?;
    let area = slope.mul(&grown.add(&intercept.mul(&ratio.log()?)?)?)?;
    let [_, labels] = ends(&tp.add(fn_)?)?;
    area.divide_no_nan(&labels.maximum(&zero)?)?.sum(&[], false)
}
