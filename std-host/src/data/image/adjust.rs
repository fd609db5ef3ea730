//! Conversion of element types, and adjustment of brightness, contrast and colours.

use super::rows_axis;
use gradlet_core::{DType, Error, Result, Tensor};

/// Converts images to `dtype` and scales their values to the range of that type: 0 to 1 for floats, 0 to the maximum for integers.
/// Equivalent of `tf.image.convert_image_dtype`.
///
/// If `saturate` is true, values out of range are clamped. Otherwise they are cast as they are. Fails for bool.
///
/// ```
/// use gradlet::{DType, Tensor, image};
/// let x = Tensor::new(&gradlet::cpu(), &[0u8, 255, 255], &[1, 1, 3])?;
/// assert_eq!(image::convert_image_dtype(&x, DType::F32, false)?.to_vec::<f32>()?, [0.0, 1.0, 1.0]);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn convert_image_dtype(images: &Tensor, dtype: DType, saturate: bool) -> Result<Tensor> {
    let from = images.dtype();
    match (from == dtype, greatest(from)?, greatest(dtype)?) {
        (true, ..) => Ok(images.clone()),
        (_, None, None) => images.cast(dtype),
        (_, Some(most), None) => images.cast(dtype)?.mul_scalar(1.0 / most as f64),
        (_, None, Some(most)) => {
            let scaled = images.mul_scalar(most as f64 + 0.5)?;
            if saturate { limited(&scaled, dtype, most)?.cast(dtype) } else { scaled.cast(dtype) }
        }
        (_, Some(most), Some(least)) if most > least => {
            let steps = ((i128::from(most) + 1) / (i128::from(least) + 1)) as f64;
            let scaled = images.floordiv(&images.like(steps)?)?;
            if saturate && dtype != DType::I8 { scaled.maximum(&scaled.like(0.0)?)?.cast(dtype) } else { scaled.cast(dtype) }
        }
        (_, Some(least), Some(most)) => {
            let images = if saturate && dtype == DType::U8 { images.maximum(&images.like(0.0)?)? } else { images.clone() };
            images.cast(dtype)?.mul_scalar(((i128::from(most) + 1) / (i128::from(least) + 1)) as f64)
        }
    }
}

/// Returns the maximum of an integer type, or `None` for floats.
fn greatest(dtype: DType) -> Result<Option<i64>> {
    Ok(match dtype {
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => None,
        DType::I8 => Some(i8::MAX.into()),
        DType::U8 => Some(u8::MAX.into()),
        DType::I16 => Some(i16::MAX.into()),
        DType::I32 => Some(i32::MAX.into()),
        DType::I64 => Some(i64::MAX),
        DType::Bool => return Err(Error::message("images must have a numeric type, not bool")),
    })
}

/// Clamps floats to the range of an integer type.
fn limited(x: &Tensor, dtype: DType, most: i64) -> Result<Tensor> {
    let least = if dtype == DType::U8 { 0.0 } else { -(most as f64) - 1.0 };
    // The greatest float that does not exceed the maximum of the integer type.
    let most = match (x.dtype(), dtype) {
        (DType::F64, DType::I64) => (most as f64).next_down(),
        (DType::F32, DType::I32 | DType::I64) => f64::from((most as f32).next_down()),
        _ => most as f64,
    };
    x.clip_by_value(least, most)
}

/// Applies `adjust` to the images in a float type and converts the result back to their type. f16 and f32 images stay as they are; other
/// types are converted to f32, with values from 0 to 1.
fn as_floats(images: &Tensor, adjust: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let floats = match images.dtype() {
        DType::F16 | DType::F32 => images.clone(),
        _ => convert_image_dtype(images, DType::F32, false)?,
    };
    convert_image_dtype(&adjust(&floats)?, images.dtype(), true)
}

/// Adds `delta` to images, on the scale of floats from 0 to 1. Integers are clamped to their range. Equivalent of
/// `tf.image.adjust_brightness`. Fails for bool.
pub fn adjust_brightness(images: &Tensor, delta: f64) -> Result<Tensor> {
    as_floats(images, |x| x.add_scalar(delta))
}

/// Multiplies the distance of each value from the mean of its image and channel by `factor`. Images are `[h,w,c]` or `[n,h,w,c]`. Integers
/// are clamped to their range. Equivalent of `tf.image.adjust_contrast`. Fails for other ranks and bool.
pub fn adjust_contrast(images: &Tensor, factor: f64) -> Result<Tensor> {
    let axis = rows_axis(images)? as i32;
    as_floats(images, |x| {
        let mean = x.mean(&[axis, axis + 1], true)?;
        x.sub(&mean)?.mul_scalar(factor)?.add(&mean)
    })
}

/// Computes `gain · x^gamma` of images, on the scale of floats from 0 to 1. Integers are clamped to their range. Equivalent of
/// `tf.image.adjust_gamma`. Fails for bool and if `gamma` is negative.
pub fn adjust_gamma(images: &Tensor, gamma: f64, gain: f64) -> Result<Tensor> {
    if gamma.is_nan() || gamma < 0.0 {
        return Err(Error::message(format!("gamma should be a non-negative real number, not {gamma}")));
    }
    as_floats(images, |x| x.pow(&x.like(gamma)?)?.mul_scalar(gain))
}

/// Converts RGB images `[…,3]` to grayscale images `[…,1]`. Equivalent of `tf.image.rgb_to_grayscale`. Fails if the last dimension is not
/// 3.
pub fn rgb_to_grayscale(images: &Tensor) -> Result<Tensor> {
    if images.shape().back(0) != Some(3) {
        return Err(Error::message(format!("RGB images must have a last dimension of 3, not {}", images.tensor_type())));
    }
    let floats = convert_image_dtype(images, DType::F32, false)?;
    let weights = Tensor::new(&floats.device()?, &[0.2989f32, 0.5870, 0.1140], &[3])?;
    convert_image_dtype(&floats.mul(&weights)?.sum(&[-1], true)?, images.dtype(), false)
}

/// Converts grayscale images `[…,1]` to RGB images `[…,3]`. Equivalent of `tf.image.grayscale_to_rgb`. Fails if the last dimension is not
/// 1.
pub fn grayscale_to_rgb(images: &Tensor) -> Result<Tensor> {
    if images.shape().back(0) != Some(1) {
        return Err(Error::message(format!("grayscale images must have a last dimension of 1, not {}", images.tensor_type())));
    }
    let mut multiples = vec![1; images.shape().rank()];
    multiples.pop();
    multiples.push(3);
    images.tile(&multiples)
}

/// Scales each image to mean 0 and standard deviation 1. Images are `[h,w,c]` or `[n,h,w,c]`; the result is f32. Equivalent of
/// `tf.image.per_image_standardization`: a standard deviation of less than `1/√(h·w·c)` is replaced by that value. Fails for other ranks.
pub fn per_image_standardization(images: &Tensor) -> Result<Tensor> {
    rows_axis(images)?;
    let axes = [-1, -2, -3];
    let x = images.cast(DType::F32)?;
    let count: u64 = x.dims().iter().rev().take(3).map(|&dim| u64::from(dim)).product();
    let least = 1.0 / (count.max(1) as f64).sqrt();
    let deviation = x.std(&axes, true)?;
    x.sub(&x.mean(&axes, true)?)?.div(&deviation.maximum(&deviation.like(least)?)?)
}
