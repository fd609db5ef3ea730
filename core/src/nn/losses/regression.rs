//! Regression losses, for numeric targets.

use super::{EPSILON, Loss, alike};
use crate::base::error::Result;
use crate::tensor::Tensor;

/// Keras's `MeanSquaredError`: the mean of (y_true − y_pred)² over the last axis.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeanSquaredError;

impl Loss for MeanSquaredError {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        y_true.sub(&y_pred)?.square()?.mean(&[-1], false)
    }
}

/// Keras's `MeanAbsoluteError`: the mean of |y_true − y_pred| over the last axis.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeanAbsoluteError;

impl Loss for MeanAbsoluteError {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        y_true.sub(&y_pred)?.abs()?.mean(&[-1], false)
    }
}

/// Keras's `MeanAbsolutePercentageError`: 100 · the mean of |(y_true − y_pred) / max(|y_true|, ε)| over the last axis.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeanAbsolutePercentageError;

impl Loss for MeanAbsolutePercentageError {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        let size = y_true.abs()?.maximum(&y_true.like(EPSILON)?)?;
        y_true.sub(&y_pred)?.div(&size)?.abs()?.mean(&[-1], false)?.mul_scalar(100.0)
    }
}

/// Keras's `MeanSquaredLogarithmicError`: the mean of (ln(y_pred + 1) − ln(y_true + 1))² over the last axis. Before that, values of
/// y_true and y_pred below ε are replaced by ε.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeanSquaredLogarithmicError;

impl Loss for MeanSquaredLogarithmicError {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        let log = |y: &Tensor| y.maximum(&y.like(EPSILON)?)?.add_scalar(1.0)?.log();
        log(&y_pred)?.sub(&log(&y_true)?)?.square()?.mean(&[-1], false)
    }
}

/// Keras's `CosineSimilarity`: the negated cosine of the angle between y_true and y_pred along an axis.
#[derive(Clone, Copy, Debug)]
pub struct CosineSimilarity {
    axis: i32,
}

impl CosineSimilarity {
    /// Sets the axis of the vectors (default: the last).
    pub fn axis(self, axis: i32) -> CosineSimilarity {
        CosineSimilarity { axis }
    }

    /// Returns the cosine of the angle between `y_true` and `y_pred`. The loss is its negative.
    pub(crate) fn cosine(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        let normal = |y: &Tensor| {
            let inverse = y.square()?.sum(&[self.axis], true)?.rsqrt()?;
            y.mul(&inverse.minimum(&y.like(1.0 / EPSILON)?)?)
        };
        let (y_pred, y_true) = (normal(&y_pred)?, normal(&y_true)?);
        y_true.mul(&y_pred)?.sum(&[self.axis], false)
    }
}

impl Default for CosineSimilarity {
    fn default() -> CosineSimilarity {
        CosineSimilarity { axis: -1 }
    }
}

impl Loss for CosineSimilarity {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        self.cosine(y_true, y_pred)?.neg()
    }
}

/// Keras's `Huber`: the mean over the last axis of e² / 2 where |e| ≤ δ, and of δ·|e| − δ² / 2 elsewhere, for e = y_pred − y_true.
#[derive(Clone, Copy, Debug)]
pub struct Huber {
    delta: f64,
}

impl Huber {
    /// Sets δ, the size of the error above which the loss grows linearly (default 1).
    pub fn delta(self, delta: f64) -> Huber {
        Huber { delta }
    }
}

impl Default for Huber {
    fn default() -> Huber {
        Huber { delta: 1.0 }
    }
}

impl Loss for Huber {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        let error = y_pred.sub(&y_true)?;
        let (size, delta) = (error.abs()?, error.like(self.delta)?);
        let (curve, line) = (error.square()?.mul_scalar(0.5)?, size.mul(&delta)?.sub(&delta.square()?.mul_scalar(0.5)?)?);
        size.less_equal(&delta)?.select(&curve, &line)?.mean(&[-1], false)
    }
}

/// Keras's `LogCosh`: the mean of ln cosh(y_pred − y_true) over the last axis.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogCosh;

impl Loss for LogCosh {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        let error = y_pred.sub(&y_true)?;
        let losses = error.add(&error.mul_scalar(-2.0)?.softplus()?)?.add_scalar(-core::f64::consts::LN_2)?;
        losses.mean(&[-1], false)
    }
}
