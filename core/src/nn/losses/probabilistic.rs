//! Losses for predicted probabilities.

use super::{EPSILON, Loss, alike, same_rank, wide};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use alloc::format;

/// Clips `p` to [ε, 1 − ε]. The bounds are rounded to f32, so that they are the same in f32 and f64.
fn clipped(p: &Tensor) -> Result<Tensor> {
    p.clip_by_value(f64::from(EPSILON as f32), f64::from((1.0 - EPSILON) as f32))
}

/// Returns `y_true` and `y_pred` with the same rank and element type. Fails if their shapes then differ.
fn same_shape(y_true: &Tensor, y_pred: &Tensor) -> Result<(Tensor, Tensor)> {
    let (y_true, y_pred) = alike(y_true, y_pred)?;
    if y_true.dims() == y_pred.dims() {
        return Ok((y_true, y_pred));
    }
    Err(Error::message(format!("y_true must have the shape of y_pred, {}, not {}", y_pred.shape(), y_true.shape())))
}

/// Returns the labels, each moved towards `mean` by the fraction `smoothing`.
fn smoothed(labels: &Tensor, smoothing: f64, mean: f64) -> Result<Tensor> {
    if smoothing == 0.0 { Ok(labels.clone()) } else { labels.mul_scalar(1.0 - smoothing)?.add_scalar(smoothing * mean) }
}

/// Returns the binary cross entropy of each element, −y·ln p − (1 − y)·ln(1 − p), for the labels y and the probabilities p. The
/// probabilities are clipped, so that neither logarithm is infinite.
fn binary(labels: &Tensor, probabilities: &Tensor) -> Result<Tensor> {
    let (hit, one) = (clipped(probabilities)?, labels.like(1.0)?);
    let missed = one.sub(&hit)?.log()?;
    labels.mul(&hit.log()?)?.add(&one.sub(labels)?.mul(&missed)?)?.neg()
}

/// Keras's `BinaryCrossentropy`: the mean over an axis of −y·ln p − (1 − y)·ln(1 − p), where y = y_true. The probability p is
/// y_pred, or the sigmoid of y_pred if the predictions are logits.
///
/// ```
/// use gradlet_core::losses::{BinaryCrossentropy, Loss};
/// use gradlet_core::{Tensor, ops};
/// let device = ops::portable_cpu();
/// let y_true = Tensor::new(&device, &[0.0f32, 1.0], &[2, 1])?;
/// let y_pred = Tensor::new(&device, &[0.0f32, 0.0], &[2, 1])?;
/// let loss = BinaryCrossentropy::default().from_logits(true).call(&y_true, &y_pred)?.item::<f32>()?;
/// assert!((loss - core::f32::consts::LN_2).abs() < 1e-6);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BinaryCrossentropy {
    from_logits: bool,
    label_smoothing: f64,
    axis: i32,
}

impl Default for BinaryCrossentropy {
    /// Returns the loss for predictions that are probabilities rather than logits, over the last axis.
    fn default() -> BinaryCrossentropy {
        BinaryCrossentropy { from_logits: false, label_smoothing: 0.0, axis: -1 }
    }
}

impl BinaryCrossentropy {
    /// Sets whether `y_pred` holds logits rather than probabilities (default false).
    pub fn from_logits(self, from_logits: bool) -> BinaryCrossentropy {
        BinaryCrossentropy { from_logits, ..self }
    }

    /// Sets the fraction by which the labels move towards ½ (default 0).
    pub fn label_smoothing(self, label_smoothing: f64) -> BinaryCrossentropy {
        BinaryCrossentropy { label_smoothing, ..self }
    }

    /// Sets the axis of the mean (default: the last).
    pub fn axis(self, axis: i32) -> BinaryCrossentropy {
        BinaryCrossentropy { axis, ..self }
    }
}

impl Loss for BinaryCrossentropy {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = same_shape(y_true, y_pred)?;
        let labels = smoothed(&y_true, self.label_smoothing, 0.5)?;
        let losses = if self.from_logits { y_pred.sigmoid_cross_entropy(&labels)? } else { binary(&labels, &y_pred)? };
        losses.mean(&[self.axis], false)
    }
}

/// Keras's `BinaryFocalCrossentropy` (Lin et al., arXiv:1708.02002): the crossentropy of each element times (1 − q)^γ, where q is
/// the predicted probability of its label. With `apply_class_balancing`, it is also multiplied by α for label 1 and by 1 − α for
/// label 0.
#[derive(Clone, Copy, Debug)]
pub struct BinaryFocalCrossentropy {
    apply_class_balancing: bool,
    alpha: f64,
    gamma: f64,
    from_logits: bool,
    label_smoothing: f64,
    axis: i32,
}

impl Default for BinaryFocalCrossentropy {
    /// Returns the loss for predictions that are probabilities rather than logits, over the last axis.
    fn default() -> BinaryFocalCrossentropy {
        BinaryFocalCrossentropy {
            apply_class_balancing: false,
            alpha: 0.25,
            gamma: 2.0,
            from_logits: false,
            label_smoothing: 0.0,
            axis: -1,
        }
    }
}

impl BinaryFocalCrossentropy {
    /// Sets whether the classes have the weights α and 1 − α (default false).
    pub fn apply_class_balancing(self, apply_class_balancing: bool) -> BinaryFocalCrossentropy {
        BinaryFocalCrossentropy { apply_class_balancing, ..self }
    }

    /// Sets α, the weight of class 1 (default 0.25).
    pub fn alpha(self, alpha: f64) -> BinaryFocalCrossentropy {
        BinaryFocalCrossentropy { alpha, ..self }
    }

    /// Sets γ (default 2). A larger γ reduces the weight of elements that are already predicted well.
    pub fn gamma(self, gamma: f64) -> BinaryFocalCrossentropy {
        BinaryFocalCrossentropy { gamma, ..self }
    }

    /// Sets whether `y_pred` holds logits rather than probabilities (default false).
    pub fn from_logits(self, from_logits: bool) -> BinaryFocalCrossentropy {
        BinaryFocalCrossentropy { from_logits, ..self }
    }

    /// Sets the fraction by which the labels move towards ½ (default 0).
    pub fn label_smoothing(self, label_smoothing: f64) -> BinaryFocalCrossentropy {
        BinaryFocalCrossentropy { label_smoothing, ..self }
    }

    /// Sets the axis of the mean (default: the last).
    pub fn axis(self, axis: i32) -> BinaryFocalCrossentropy {
        BinaryFocalCrossentropy { axis, ..self }
    }
}

impl Loss for BinaryFocalCrossentropy {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = same_shape(y_true, y_pred)?;
        let (labels, one) = (smoothed(&y_true, self.label_smoothing, 0.5)?, y_true.like(1.0)?);
        let probabilities = if self.from_logits { y_pred.sigmoid()? } else { y_pred };
        let other = one.sub(&labels)?;
        let right = labels.mul(&probabilities)?.add(&other.mul(&one.sub(&probabilities)?)?)?;
        let focus = one.sub(&right)?.pow(&one.like(self.gamma)?)?;
        let mut losses = focus.mul(&binary(&labels, &probabilities)?)?;
        if self.apply_class_balancing {
            losses = labels.mul_scalar(self.alpha)?.add(&other.mul_scalar(1.0 - self.alpha)?)?.mul(&losses)?;
        }
        losses.mean(&[self.axis], false)
    }
}

/// Keras's `CategoricalCrossentropy`: the sum over an axis of −y·ln p, where y = y_true holds probabilities. The probabilities p
/// are y_pred, scaled to a sum of 1, or the softmax of y_pred if the predictions are logits.
#[derive(Clone, Copy, Debug)]
pub struct CategoricalCrossentropy {
    from_logits: bool,
    label_smoothing: f64,
    axis: i32,
}

impl Default for CategoricalCrossentropy {
    /// Returns the loss for predictions that are probabilities rather than logits, over the last axis.
    fn default() -> CategoricalCrossentropy {
        CategoricalCrossentropy { from_logits: false, label_smoothing: 0.0, axis: -1 }
    }
}

impl CategoricalCrossentropy {
    /// Sets whether `y_pred` holds logits rather than probabilities (default false).
    pub fn from_logits(self, from_logits: bool) -> CategoricalCrossentropy {
        CategoricalCrossentropy { from_logits, ..self }
    }

    /// Sets the fraction by which the labels move towards 1 / n (default 0). Here n is the number of classes, which is the last
    /// dimension.
    pub fn label_smoothing(self, label_smoothing: f64) -> CategoricalCrossentropy {
        CategoricalCrossentropy { label_smoothing, ..self }
    }

    /// Sets the axis of the classes (default: the last).
    pub fn axis(self, axis: i32) -> CategoricalCrossentropy {
        CategoricalCrossentropy { axis, ..self }
    }
}

impl Loss for CategoricalCrossentropy {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = same_shape(y_true, y_pred)?;
        let classes = y_true.shape().back(0).ok_or(Error::Rank { input: 0 })?;
        let labels = smoothed(&y_true, self.label_smoothing, 1.0 / f64::from(classes))?;
        if self.from_logits {
            return y_pred.softmax_cross_entropy(&labels, self.axis);
        }
        let probabilities = clipped(&y_pred.div(&y_pred.sum(&[self.axis], true)?)?)?;
        labels.mul(&probabilities.log()?)?.sum(&[self.axis], false)?.neg()
    }
}

/// Keras's `SparseCategoricalCrossentropy`: −ln p\[y_true\]. The probabilities p are y_pred, scaled to a sum of 1, or the softmax
/// of y_pred if the predictions are logits.
///
/// `y_true` holds labels, in the shape `[…]` or `[…, 1]`, and `y_pred` has the shape `[…, classes]`. A label out of range is an
/// error that names its position, its value, and the number of classes.
///
/// ```
/// use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
/// use gradlet_core::{Tensor, ops};
/// let device = ops::portable_cpu();
/// let y_true = Tensor::new(&device, &[1i32], &[1])?;
/// let y_pred = Tensor::new(&device, &[0.25f32, 0.5, 0.25], &[1, 3])?;
/// let loss = SparseCategoricalCrossentropy::default().call(&y_true, &y_pred)?.item::<f32>()?;
/// assert!((loss - core::f32::consts::LN_2).abs() < 1e-6);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SparseCategoricalCrossentropy {
    from_logits: bool,
    ignore_class: Option<i64>,
}

impl SparseCategoricalCrossentropy {
    /// Sets whether `y_pred` holds logits rather than probabilities (default false).
    pub fn from_logits(self, from_logits: bool) -> SparseCategoricalCrossentropy {
        SparseCategoricalCrossentropy { from_logits, ..self }
    }

    /// Ignores samples with this label: they have no loss and do not count in the mean. The label need not be a valid class.
    pub fn ignore_class(self, class: i64) -> SparseCategoricalCrossentropy {
        SparseCategoricalCrossentropy { ignore_class: Some(class), ..self }
    }

    /// Returns the labels as integers, without a last axis of size 1 that takes the place of the axis of classes in `y_pred`.
    fn labels(y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = same_rank(y_true, y_pred)?;
        let labels = match y_true.dims() {
            [rest @ .., 1] if y_true.dims().len() == y_pred.dims().len() => y_true.reshape(rest)?,
            _ => y_true,
        };
        if matches!(labels.dtype(), DType::I32 | DType::I64) { Ok(labels) } else { labels.cast(DType::I64) }
    }
}

impl Loss for SparseCategoricalCrossentropy {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (labels, y_pred) = (SparseCategoricalCrossentropy::labels(y_true, y_pred)?, &wide(y_pred)?);
        let logits = |y_pred: &Tensor| if self.from_logits { Ok(y_pred.clone()) } else { clipped(y_pred)?.log() };
        let Some(valid) = self.mask(y_true, y_pred)? else { return logits(y_pred)?.sparse_softmax_cross_entropy(&labels) };
        let wide = valid.reshape(&[valid.dims(), &[1]].concat())?;
        let labels = valid.select(&labels, &labels.like(0.0)?)?;
        let y_pred = wide.select(y_pred, &y_pred.like(0.0)?)?;
        let losses = logits(&y_pred)?.sparse_softmax_cross_entropy(&labels)?;
        valid.select(&losses, &losses.like(0.0)?)
    }

    fn mask(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Option<Tensor>> {
        let Some(class) = self.ignore_class else { return Ok(None) };
        let labels = SparseCategoricalCrossentropy::labels(y_true, y_pred)?;
        labels.not_equal(&labels.like(class as f64)?).map(Some)
    }
}

/// Keras's `KLDivergence`: the sum of y·ln(y / p) over the last axis, for y = y_true and p = y_pred. Both are clipped to [ε, 1].
#[derive(Clone, Copy, Debug, Default)]
pub struct KLDivergence;

impl Loss for KLDivergence {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        let clip = |p: &Tensor| p.clip_by_value(EPSILON, 1.0);
        let (y_true, y_pred) = (clip(&y_true)?, clip(&y_pred)?);
        y_true.mul(&y_true.div(&y_pred)?.log()?)?.sum(&[-1], false)
    }
}

/// Keras's `Poisson`: the mean of y_pred − y_true · ln(y_pred + ε) over the last axis.
#[derive(Clone, Copy, Debug, Default)]
pub struct Poisson;

impl Loss for Poisson {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        let (y_true, y_pred) = alike(y_true, y_pred)?;
        y_pred.sub(&y_true.mul(&y_pred.add_scalar(EPSILON)?.log()?)?)?.mean(&[-1], false)
    }
}
