//! Hinge losses, which penalise predictions inside a margin.

use super::{Loss, alike};
use crate::base::error::Result;
use crate::tensor::Tensor;

/// Keras's `Hinge`: the mean of max(1 − y_true · y_pred, 0) over the last axis. Labels are −1 or 1. If all labels are 0 or 1, the
/// loss treats each 0 as −1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hinge;

impl Loss for Hinge {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        margin(y_true, y_pred)?.mean(&[-1], false)
    }
}

/// Keras's `SquaredHinge`: the mean of max(1 − y_true · y_pred, 0)² over the last axis. Labels are the same as for [`Hinge`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SquaredHinge;

impl Loss for SquaredHinge {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        margin(y_true, y_pred)?.square()?.mean(&[-1], false)
    }
}

fn margin(y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
    let (y_true, y_pred) = alike(y_true, y_pred)?;
    let (zero, one) = (y_true.like(0.0)?, y_true.like(1.0)?);
    let binary = y_true.equal(&zero)?.logical_or(&y_true.equal(&one)?)?.all(&[], false)?;
    let y_true = binary.select(&y_true.mul_scalar(2.0)?.sub(&one)?, &y_true)?;
    one.sub(&y_true.mul(&y_pred)?)?.maximum(&zero)
}

/// Keras's `CategoricalHinge`: max(n − p + 1, 0) over the last axis, where p is the sum of y_true · y_pred, and n is the maximum of
/// (1 − y_true) · y_pred.
#[derive(Clone, Copy, Debug, Default)]
pub struct CategoricalHinge;

impl Loss for CategoricalHinge {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        let hit = y_true.mul(&y_pred)?.sum(&[-1], false)?;
        let missed = y_true.like(1.0)?.sub(&y_true)?.mul(&y_pred)?.max(&[-1], false)?;
        missed.sub(&hit)?.add_scalar(1.0)?.maximum(&missed.like(0.0)?)
    }
}
