//! Values that a scalar summary accepts.

use gradlet_core::{DType, Error, Result, Tensor};

/// A number, or a scalar tensor of any element type. TensorBoard stores it as an f32.
pub trait Scalar {
    /// Returns the number. Fails if a tensor is not a scalar or has no value yet.
    fn to_f32(&self) -> Result<f32>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Scalar for $number {
            fn to_f32(&self) -> Result<f32> {
                Ok(*self as f32)
            }
        }
    )*};
}
numbers!(f32, f64, i8, u8, i16, u16, i32, u32, i64, u64, usize);

impl Scalar for bool {
    fn to_f32(&self) -> Result<f32> {
        Ok(f32::from(u8::from(*self)))
    }
}

impl Scalar for Tensor {
    fn to_f32(&self) -> Result<f32> {
        match self.dims() {
            [] => self.cast(DType::F32)?.item(),
            _ => Err(Error::message(format!("a scalar summary needs a scalar, not {}", self.tensor_type()))),
        }
    }
}

impl<S: Scalar + ?Sized> Scalar for &S {
    fn to_f32(&self) -> Result<f32> {
        (**self).to_f32()
    }
}
