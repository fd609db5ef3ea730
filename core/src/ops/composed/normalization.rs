//! Normalisation, composed of other ops: batch, layer, group and L2 normalisation.
//!
//! All but l2 compute `x · inv + (offset − mean · inv)` with `inv = scale / √(variance + ε)`, like TensorFlow and Keras. Layer,
//! group, l2 and fused batch normalisation compute 16-bit floats in f32.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::ops::shared::reduce;
use crate::tensor::Tensor;
use alloc::vec::Vec;

impl Tensor {
    /// Returns mean and variance over `axes`. Negative axes count from the end. An empty `axes` reduces all axes. With
    /// `keepdims`, the reduced axes stay in the shapes with dimension 1. Like `tf.nn.moments`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 3.0, 5.0, 5.0], &[2, 2])?;
    /// let (mean, variance) = x.moments(&[1], false)?;
    /// assert_eq!((mean.to_vec::<f32>()?, variance.to_vec::<f32>()?), (vec![2.0, 5.0], vec![1.0, 0.0]));
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn moments(&self, axes: &[i32], keepdims: bool) -> Result<(Tensor, Tensor)> {
        let mean = self.mean(axes, true)?;
        // The derivative of the variance with respect to the mean is 0 at the mean.
        let variance = self.sub(&mean.stop_gradient()?)?.square()?.mean(axes, keepdims)?;
        Ok((mean.reshape(variance.dims())?, variance))
    }

    /// Returns `(self − mean) / √(variance + ε) · scale + offset`, all broadcast. Like `tf.nn.batch_normalization`.
    ///
    /// Fails on integers, or if shapes do not broadcast or element types differ.
    pub fn batch_normalization(
        &self,
        mean: &Tensor,
        variance: &Tensor,
        offset: Option<&Tensor>,
        scale: Option<&Tensor>,
        epsilon: f64,
    ) -> Result<Tensor> {
        let mut inverse = variance.add_scalar(epsilon)?.rsqrt()?;
        if let Some(scale) = scale {
            inverse = inverse.mul(scale)?;
        }
        let shift = match offset {
            Some(offset) => offset.sub(&mean.mul(&inverse)?)?,
            None => mean.mul(&inverse)?.neg()?,
        };
        self.mul(&inverse)?.add(&shift)
    }

    /// Normalises by the tensor's own mean and variance over all axes but `axis`. Returns the result, the mean and the variance. A
    /// negative axis counts from the end. Mean, variance and the optional scale and offset have rank 1, with the dimension of
    /// `axis`. Like Keras's `BatchNormalization` in training.
    ///
    /// Fails on integers, if the axis is out of range, or if scale or offset do not match it.
    pub fn batch_norm(&self, axis: i32, offset: Option<&Tensor>, scale: Option<&Tensor>, epsilon: f64) -> Result<[Tensor; 3]> {
        let (mean, variance) = self.moments(&self.all_but(axis)?, false)?;
        let y = self.batch_normalization_along(axis, [&mean, &variance], offset, scale, epsilon)?;
        Ok([y, mean, variance])
    }

    /// Normalises like [`Tensor::batch_normalization`], with statistics for each index along `axis`. Mean, variance, offset and
    /// scale have rank 1, with the dimension of `axis`.
    pub(crate) fn batch_normalization_along(
        &self,
        axis: i32,
        [mean, variance]: [&Tensor; 2],
        offset: Option<&Tensor>,
        scale: Option<&Tensor>,
        epsilon: f64,
    ) -> Result<Tensor> {
        let after = self.dims().len() - 1 - reduce::axis(self, axis)? as usize;
        let along = |tensor: &Tensor| tensor.reshape(&[tensor.dims(), &alloc::vec![1; after]].concat());
        let (offset, scale) = (offset.map(along).transpose()?, scale.map(along).transpose()?);
        self.batch_normalization(&along(mean)?, &along(variance)?, offset.as_ref(), scale.as_ref(), epsilon)
    }

    /// Normalises images like [`Tensor::batch_norm`], over their last axis. Returns the result, the mean and the variance. Like
    /// `tf.compat.v1.nn.fused_batch_norm` in training.
    ///
    /// The returned variance is the sample estimate with Bessel's correction: n/(n−1) times the variance that normalised the
    /// images. No gradient flows through the returned mean and variance.
    pub fn fused_batch_norm(&self, scale: &Tensor, offset: &Tensor, epsilon: f64) -> Result<[Tensor; 3]> {
        let (x, offset, scale) = (self.in_32_bits()?, offset.in_32_bits()?, scale.in_32_bits()?);
        let [y, mean, variance] = x.batch_norm(-1, Some(&offset), Some(&scale), epsilon)?;
        let count = self.dims().iter().rev().skip(1).map(|&dim| f64::from(dim)).product::<f64>();
        let correction = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
        let dtype = self.dtype();
        let (mean, variance) = (mean.stop_gradient()?, variance.stop_gradient()?.mul_scalar(correction)?);
        Ok([y.cast(dtype)?, mean.cast(dtype)?, variance.cast(dtype)?])
    }

    /// Returns the axes other than `axis`. A negative axis counts from the end.
    fn all_but(&self, axis: i32) -> Result<Vec<i32>> {
        let axis = reduce::axis(self, axis)? as i32;
        Ok((0..self.dims().len() as i32).filter(|&other| other != axis).collect())
    }

    /// Normalises each sample by its mean and variance over `axes`. The optional gamma and beta have the dimensions of those
    /// axes, in ascending order. Like Keras's `LayerNormalization`.
    ///
    /// Fails on integers, if axes are out of range or listed twice, or if gamma or beta have other dimensions.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 3.0, 5.0, 5.0], &[2, 2])?;
    /// assert_eq!(x.layer_norm(&[-1], None, None, 0.0)?.to_vec::<f32>()?[..2], [-1.0, 1.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn layer_norm(&self, axes: &[i32], gamma: Option<&Tensor>, beta: Option<&Tensor>, epsilon: f64) -> Result<Tensor> {
        let mut shape = alloc::vec![1; self.dims().len()];
        for &axis in axes {
            let axis = reduce::axis(self, axis)? as usize;
            shape[axis] = self.dims()[axis];
        }
        let x = self.in_32_bits()?;
        let (mean, variance) = x.moments(axes, true)?;
        let spread = |weight: Option<&Tensor>| weight.map(|weight| weight.in_32_bits()?.reshape(&shape)).transpose();
        let (gamma, beta) = (spread(gamma)?, spread(beta)?);
        x.batch_normalization(&mean, &variance, beta.as_ref(), gamma.as_ref(), epsilon)?.cast(self.dtype())
    }

    /// Normalises each sample by mean and variance of groups: `axis` is divided into `groups` groups of adjacent channels. Mean and
    /// variance are taken over each group and all other axes but the first. The optional gamma and beta have the dimension of
    /// `axis`. Like Keras's `GroupNormalization`.
    ///
    /// Fails on integers. Fails if the axis is out of range, is the first one, or has a dimension that is not a multiple of
    /// `groups`. Fails if gamma or beta have another dimension.
    pub fn group_norm(&self, groups: u32, axis: i32, gamma: Option<&Tensor>, beta: Option<&Tensor>, epsilon: f64) -> Result<Tensor> {
        let axis = reduce::axis(self, axis)? as usize;
        let channels = self.dims()[axis];
        if axis == 0 || groups == 0 || !channels.is_multiple_of(groups) {
            let text = alloc::format!("axis {axis} of {} cannot be divided into {groups} groups", self.tensor_type());
            return Err(Error::message(text));
        }
        let divided = |dims: &[u32]| [&dims[..axis], &[groups, channels / groups], &dims[axis + 1..]].concat();
        let x = self.in_32_bits()?.reshape(&divided(self.dims()))?;
        let axes: Vec<i32> = (1..x.dims().len()).filter(|&other| other != axis).map(|axis| axis as i32).collect();
        let (mean, variance) = x.moments(&axes, true)?;
        let shape = divided(&alloc::vec![1; self.dims().len()]);
        let spread = |weight: Option<&Tensor>| weight.map(|weight| weight.in_32_bits()?.reshape(&shape)).transpose();
        let (gamma, beta) = (spread(gamma)?, spread(beta)?);
        let y = x.batch_normalization(&mean, &variance, beta.as_ref(), gamma.as_ref(), epsilon)?;
        y.reshape(self.dims())?.cast(self.dtype())
    }

    /// Divides the tensor by its Euclidean norm over `axes`: `self / √max(Σ self², ε)`. An empty `axes` means all axes. Like
    /// `tf.math.l2_normalize`.
    ///
    /// Fails on integers, or if axes are out of range or listed twice.
    pub fn l2_normalize(&self, axes: &[i32], epsilon: f64) -> Result<Tensor> {
        let x = self.in_32_bits()?;
        let squares = x.square()?.sum(axes, true)?;
        x.mul(&squares.maximum(&squares.like(epsilon)?)?.rsqrt()?)?.cast(self.dtype())
    }

    /// Casts 16-bit floats to f32. Returns other types unchanged.
    pub(crate) fn in_32_bits(&self) -> Result<Tensor> {
        match self.dtype() {
            DType::F16 | DType::Bf16 => self.cast(DType::F32),
            _ => Ok(self.clone()),
        }
    }
}
