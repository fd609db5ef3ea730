//! Clipping by value and by norm, made of ops.

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use alloc::vec::Vec;

impl Tensor {
    /// Each element, or `min` if it is smaller, `max` if it is larger; NaN stays NaN. As `tf.clip_by_value`.
    pub fn clip_by_value(&self, min: f64, max: f64) -> Result<Tensor> {
        self.minimum(&self.like(max)?)?.maximum(&self.like(min)?)
    }

    /// `self` scaled down to the Euclidean norm `clip_norm` over `axes` (all axes if there are none), if it is longer; a
    /// negative `clip_norm` is 0. As `tf.clip_by_norm`.
    ///
    /// Fails on integers, and where an axis is out of range.
    pub fn clip_by_norm(&self, clip_norm: f64, axes: &[i32]) -> Result<Tensor> {
        let limit = self.like(if clip_norm < 0.0 { 0.0 } else { clip_norm })?;
        let norm = self.square()?.sum(axes, true)?.sqrt()?;
        self.mul(&limit)?.div(&norm.maximum(&limit)?)
    }

    /// The Euclidean norm of all elements of all tensors, as `tf.linalg.global_norm`.
    ///
    /// Fails on integers, where the element types differ, and where there are no tensors.
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

    /// The tensors scaled down together to the global norm `clip_norm`, if they are longer, and their norm before that. All
    /// become NaN if the norm is not finite. As `tf.clip_by_global_norm`.
    ///
    /// Fails as [`Tensor::global_norm`].
    pub fn clip_by_global_norm(tensors: &[&Tensor], clip_norm: f64) -> Result<(Vec<Tensor>, Tensor)> {
        let norm = Tensor::global_norm(tensors)?;
        let scale = norm.reciprocal()?.minimum(&norm.like(1.0 / clip_norm)?)?.mul_scalar(clip_norm)?;
        let scale = scale.add(&norm.sub(&norm)?)?;
        let clipped = tensors.iter().map(|tensor| tensor.mul(&scale)).collect::<Result<_>>()?;
        Ok((clipped, norm))
    }
}
