//! Clipping by value and by norm, composed of other ops.

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use alloc::vec::Vec;

impl Tensor {
    /// Returns each element, or `min` if it is smaller, or `max` if it is larger. NaN stays NaN. Like `tf.clip_by_value`.
    pub fn clip_by_value(&self, min: f64, max: f64) -> Result<Tensor> {
        self.minimum(&self.like(max)?)?.maximum(&self.like(min)?)
    }

    /// Scales `self` down to the Euclidean norm `clip_norm` over `axes`, unless the norm is already smaller. An empty `axes`
    /// means all axes. A negative `clip_norm` counts as 0. Like `tf.clip_by_norm`.
    ///
    /// Fails on integers, or if an axis is out of range.
    pub fn clip_by_norm(&self, clip_norm: f64, axes: &[i32]) -> Result<Tensor> {
        let limit = self.like(if clip_norm < 0.0 { 0.0 } else { clip_norm })?;
        let norm = self.square()?.sum(axes, true)?.sqrt()?;
        self.mul(&limit)?.div(&norm.maximum(&limit)?)
    }

    /// Returns the Euclidean norm of all elements of all tensors, like `tf.linalg.global_norm`.
    ///
    /// Fails on integers, if the element types differ, or if there are no tensors.
    pub fn global_norm(tensors: &[&Tensor]) -> Result<Tensor> {
        let mut squares: Option<Tensor> = None;
        for tensor in tensors {
            let square = tensor.square()?.sum(&[], false)?;
            squares = Some(match squares {
                Some(squares) => squares.add(&square)?,
                None => square,
            });
        }
        squares.ok_or_else(|| Error::message("global_norm() needs at least one tensor"))?.sqrt()
    }

    /// Scales the tensors down together to the global norm `clip_norm`, unless their norm is already smaller. Returns them with
    /// their original norm. If the norm is not finite, all elements become NaN. Like `tf.clip_by_global_norm`.
    ///
    /// Fails as [`Tensor::global_norm`] does.
    pub fn clip_by_global_norm(tensors: &[&Tensor], clip_norm: f64) -> Result<(Vec<Tensor>, Tensor)> {
        let norm = Tensor::global_norm(tensors)?;
        let scale = norm.reciprocal()?.minimum(&norm.like(1.0 / clip_norm)?)?.mul_scalar(clip_norm)?;
        let scale = scale.add(&norm.sub(&norm)?)?;
        let clipped = tensors.iter().map(|tensor| tensor.mul(&scale)).collect::<Result<_>>()?;
        Ok((clipped, norm))
    }
}
