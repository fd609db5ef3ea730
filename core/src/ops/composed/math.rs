//! Named functions, composed of other ops. They need no kernels, and have gradients of all orders.

use crate::base::dtype::{Bool, DType};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;

impl Tensor {
    /// Returns `value` as a scalar with this tensor's element type, on its device. `value` is converted to the nearest value of the
    /// type. For booleans, the scalar is true unless `value` is 0.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 2.0], &[2])?;
    /// assert_eq!(x.like(1.0)?.sub(&x)?.to_vec::<f32>()?, [0.0, -1.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn like(&self, value: f64) -> Result<Tensor> {
        let device = self.device()?;
        Ok(match self.dtype() {
            DType::F32 => Tensor::scalar(&device, value as f32),
            DType::F64 => Tensor::scalar(&device, value),
            DType::F16 => Tensor::scalar(&device, half::f16::from_f64(value)),
            DType::Bf16 => Tensor::scalar(&device, half::bf16::from_f64(value)),
            DType::I8 => Tensor::scalar(&device, value as i8),
            DType::U8 => Tensor::scalar(&device, value as u8),
            DType::I16 => Tensor::scalar(&device, value as i16),
            DType::I32 => Tensor::scalar(&device, value as i32),
            DType::I64 => Tensor::scalar(&device, value as i64),
            DType::Bool => Tensor::scalar(&device, Bool::from(value != 0.0)),
        })
    }

    /// Returns `self + value`, in this tensor's element type.
    pub fn add_scalar(&self, value: f64) -> Result<Tensor> {
        self.add(&self.like(value)?)
    }

    /// Returns `self * value`, in this tensor's element type.
    pub fn mul_scalar(&self, value: f64) -> Result<Tensor> {
        self.mul(&self.like(value)?)
    }

    /// Returns zeros with this tensor's shape and element type.
    pub fn zeros_like(&self) -> Result<Tensor> {
        self.like(0.0)?.broadcast_to(self.dims())
    }

    /// Returns ones with this tensor's shape and element type.
    pub fn ones_like(&self) -> Result<Tensor> {
        self.like(1.0)?.broadcast_to(self.dims())
    }

    /// Returns booleans that are true for each element that is NaN, like `tf.math.is_nan`.
    pub fn is_nan(&self) -> Result<Tensor> {
        self.not_equal(self)
    }

    /// Returns booleans that are true for each element that is infinite, like `tf.math.is_inf`. Fails on integers.
    pub fn is_inf(&self) -> Result<Tensor> {
        self.abs()?.equal(&self.infinity()?)
    }

    /// Returns booleans that are true for each element that is neither NaN nor infinite, like `tf.math.is_finite`. Fails on integers.
    pub fn is_finite(&self) -> Result<Tensor> {
        self.abs()?.less(&self.infinity()?)
    }

    fn infinity(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.like(f64::INFINITY) } else { Err(Error::DType { input: 0 }) }
    }

    /// Returns `self²`, like `tf.math.square`.
    pub fn square(&self) -> Result<Tensor> {
        self.mul(self)
    }

    /// Returns `1 / self`, like `tf.math.reciprocal`. Fails on integers.
    pub fn reciprocal(&self) -> Result<Tensor> {
        self.like(1.0)?.div(self)
    }

    /// Returns `self / other`, broadcast, like `tf.divide`. 8-bit integers are cast to f32, and larger ones to f64.
    ///
    /// Fails if the shapes do not broadcast or the element types differ.
    pub fn divide(&self, other: &Tensor) -> Result<Tensor> {
        self.to_real()?.div(&other.to_real()?)
    }

    /// Casts integers of 8 and 16 bits to f32, and larger integers to f64. Floats stay unchanged.
    pub(in crate::ops) fn to_real(&self) -> Result<Tensor> {
        match self.dtype() {
            DType::I8 | DType::U8 | DType::I16 => self.cast(DType::F32),
            DType::I32 | DType::I64 => self.cast(DType::F64),
            _ => Ok(self.clone()),
        }
    }

    /// Returns `(self - other)²`, broadcast, like `tf.math.squared_difference`.
    ///
    /// Fails if the shapes do not broadcast or the element types differ.
    pub fn squared_difference(&self, other: &Tensor) -> Result<Tensor> {
        self.sub(other)?.square()
    }
}
