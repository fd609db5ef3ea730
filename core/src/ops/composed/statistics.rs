//! Reductions that are composed of other ops.

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// Returns the variance over `axes`: the mean of the squared distances from the mean. Negative axes count from the end. An
    /// empty `axes` reduces all axes. With `keepdims`, the reduced axes stay in the shape with dimension 1.
    ///
    /// Fails on integers, or if an axis is out of range or listed twice. Like `tf.math.reduce_variance`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 3.0, 5.0, 5.0], &[2, 2])?;
    /// assert_eq!(x.variance(&[1], false)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn variance(&self, axes: &[i32], keepdims: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(Error::message(alloc::format!("variance expected floats, but got {}", self.tensor_type())));
        }
        self.sub(&self.mean(axes, true)?)?.square()?.mean(axes, keepdims)
    }

    /// Returns the standard deviation over `axes`: the square root of [`Tensor::variance`]. Like `tf.math.reduce_std`.
    pub fn std(&self, axes: &[i32], keepdims: bool) -> Result<Tensor> {
        self.variance(axes, keepdims)?.sqrt()
    }

    /// Returns the square root of the sum of squares over `axes`. Negative axes count from the end. An empty `axes` reduces all
    /// axes. With `keepdims`, the reduced axes stay in the shape with dimension 1.
    ///
    /// Fails on integers, or if an axis is out of range or listed twice. Like `tf.norm` and `tf.math.reduce_euclidean_norm`.
    pub fn euclidean_norm(&self, axes: &[i32], keepdims: bool) -> Result<Tensor> {
        self.square()?.sum(axes, keepdims)?.sqrt()
    }

    /// Returns `ln Σ exp x` over `axes`. Negative axes count from the end. An empty `axes` reduces all axes. With `keepdims`, the
    /// reduced axes stay in the shape with dimension 1. The greatest element is subtracted first, so nothing overflows.
    ///
    /// Fails on integers, or if an axis is out of range or listed twice. Like `tf.reduce_logsumexp`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1000.0f32, 1000.0], &[2])?;
    /// assert_eq!(x.logsumexp(&[], false)?.item::<f32>()?, 1000.0 + core::f32::consts::LN_2);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn logsumexp(&self, axes: &[i32], keepdims: bool) -> Result<Tensor> {
        let greatest = self.max(axes, true)?;
        let shift = greatest.is_finite()?.select(&greatest, &self.like(0.0)?)?.stop_gradient()?;
        let sum = self.sub(&shift)?.exp()?.sum(axes, keepdims)?;
        sum.log()?.add(&shift.reshape(sum.dims())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::device;

    #[test]
    fn odd_values() {
        let logsumexp = |x: &[f32]| {
            let x = Tensor::new(device(), x, &[x.len() as u32]).unwrap();
            x.logsumexp(&[], false).unwrap().item::<f32>().unwrap()
        };
        assert_eq!(logsumexp(&[]), f32::NEG_INFINITY);
        assert_eq!(logsumexp(&[f32::NEG_INFINITY; 2]), f32::NEG_INFINITY);
        assert_eq!(logsumexp(&[f32::INFINITY, 1.0]), f32::INFINITY);
        assert!(logsumexp(&[f32::NAN, 1.0]).is_nan());
        assert_eq!(logsumexp(&[-1000.0, f32::NEG_INFINITY]), -1000.0);
    }

    #[test]
    fn integers_are_refused() {
        let x = Tensor::new(device(), &[1, 2], &[2]).unwrap();
        assert!(x.variance(&[], false).is_err() && x.std(&[], true).is_err());
        assert!(x.euclidean_norm(&[], false).is_err() && x.logsumexp(&[], false).is_err());
    }
}
