//! Normalisation, composed of other ops: batch, layer, group and l2.
//!
//! All but the last compute `x · inv + (offset − mean · inv)` with `inv = scale / √(variance + ε)`, as TensorFlow and Keras do. Layer,
//! group and l2 normalisation, and the fused one of batches, compute in f32 what is given in 16 bits.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::ops::shared::reduce;
use crate::tensor::Tensor;
use alloc::vec::Vec;

impl Tensor {
    /// Mean and variance over `axes`, which count from the end where they are negative; over all of them if none is listed. They stay as 1
    /// in the shapes with `keepdims`. As `tf.nn.moments`.
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
        // The variance does not change with the mean, at the mean.
        let variance = self.sub(&mean.stop_gradient()?)?.square()?.mean(axes, keepdims)?;
        Ok((mean.reshape(variance.dims())?, variance))
    }

    /// `(self − mean) / √(variance + ε) · scale + offset`, all broadcast. As `tf.nn.batch_normalization`.
    ///
    /// Fails on integers, and where shapes do not broadcast or element types differ.
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

    /// Normalised by its own mean and variance over all axes but `axis`, which counts from the end where it is negative; with those two, of
    /// one dimension. Scale and offset, if there are any, have that dimension too. What Keras's `BatchNormalization` does in training.
    ///
    /// Fails on integers, where the axis is out of range, and where scale or offset do not fit it.
    pub fn batch_norm(&self, axis: i32, offset: Option<&Tensor>, scale: Option<&Tensor>, epsilon: f64) -> Result<[Tensor; 3]> {
        let (mean, variance) = self.moments(&self.all_but(axis)?, false)?;
        let y = self.batch_normalization_along(axis, [&mean, &variance], offset, scale, epsilon)?;
        Ok([y, mean, variance])
    }

    /// [`Tensor::batch_normalization`] with the two `moments`, offset and scale of one dimension, that of `axis`.
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

    /// [`Tensor::batch_norm`] of images over their last axis. The variance that it gives is the estimate from a sample (Bessel's
    /// correction: n/(n−1) times what the images were normalised by), and no gradient flows through the last two results. As
    /// `tf.compat.v1.nn.fused_batch_norm` in training.
    pub fn fused_batch_norm(&self, scale: &Tensor, offset: &Tensor, epsilon: f64) -> Result<[Tensor; 3]> {
        let (x, offset, scale) = (self.in_32_bits()?, offset.in_32_bits()?, scale.in_32_bits()?);
        let [y, mean, variance] = x.batch_norm(-1, Some(&offset), Some(&scale), epsilon)?;
        let count = self.dims().iter().rev().skip(1).map(|&dim| f64::from(dim)).product::<f64>();
        let correction = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
        let dtype = self.dtype();
        let (mean, variance) = (mean.stop_gradient()?, variance.stop_gradient()?.mul_scalar(correction)?);
        Ok([y.cast(dtype)?, mean.cast(dtype)?, variance.cast(dtype)?])
    }

    /// The axes other than `axis`, which counts from the end where it is negative.
    fn all_but(&self, axis: i32) -> Result<Vec<i32>> {
        let axis = reduce::axis(self, axis)? as i32;
        Ok((0..self.dims().len() as i32).filter(|&other| other != axis).collect())
    }

    /// Normalised by mean and variance over `axes` of each sample; gamma and beta, if there are any, have the dimensions of those axes,
    /// in ascending order. As Keras's `LayerNormalization`.
    ///
    /// Fails on integers, where axes are out of range or listed twice, and where gamma or beta have other dimensions.
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

    /// Normalised by mean and variance of each sample's `groups` groups of neighbours along `axis`, over all other axes but the first;
    /// gamma and beta, if there are any, have the dimension of that axis. As Keras's `GroupNormalization`.
    ///
    /// Fails on integers, where the axis is out of range, the first one, or not a multiple of `groups`, and where gamma or beta have
    /// another dimension.
    pub fn group_norm(&self, groups: u32, axis: i32, gamma: Option<&Tensor>, beta: Option<&Tensor>, epsilon: f64) -> Result<Tensor> {
        let axis = reduce::axis(self, axis)? as usize;
        let channels = self.dims()[axis];
        if axis == 0 || groups == 0 || !channels.is_multiple_of(groups) {
            let text = alloc::format!("axis {axis} of {} does not divide into {groups} groups", self.tensor_type());
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

    /// Divided by its length over `axes`, all of them if none is listed: `self / √max(Σ self², ε)`. As `tf.math.l2_normalize`.
    ///
    /// Fails on integers, and where axes are out of range or listed twice.
    pub fn l2_normalize(&self, axes: &[i32], epsilon: f64) -> Result<Tensor> {
        let x = self.in_32_bits()?;
        let squares = x.square()?.sum(axes, true)?;
        x.mul(&squares.maximum(&squares.like(epsilon)?)?.rsqrt()?)?.cast(self.dtype())
    }

    /// f32 instead of a 16-bit float.
    pub(crate) fn in_32_bits(&self) -> Result<Tensor> {
        match self.dtype() {
            DType::F16 | DType::Bf16 => self.cast(DType::F32),
            _ => Ok(self.clone()),
        }
    }
}
