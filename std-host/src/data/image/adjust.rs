//! Brightness, contrast, colours and element types.

use super::rows_axis;
use gradlet_core::{DType, Error, Result, Tensor};

/// Images as `dtype`, with their values on the scale of that type: from 0 to 1 in floats, from 0 to the greatest number in integers.
/// As `tf.image.convert_image_dtype`.
///
/// What is out of range stays within it where `saturate`, else it is cast as it is. Fails for bool.
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

/// The greatest number of an integer type; none for floats.
fn greatest(dtype: DType) -> Result<Option<i64>> {
    Ok(match dtype {
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => None,
        DType::I8 => Some(i8::MAX.into()),
        DType::U8 => Some(u8::MAX.into()),
        DType::I32 => Some(i32::MAX.into()),
        DType::I64 => Some(i64::MAX),
        DType::Bool => return Err(Error::message("images are numbers, not bool")),
    })
}

/// Floats that an integer type has.
fn limited(x: &Tensor, dtype: DType, most: i64) -> Result<Tensor> {
    let least = if dtype == DType::U8 { 0.0 } else { -(most as f64) - 1.0 };
    // The greatest float that is not above it.
    let most = match (x.dtype(), dtype) {
        (DType::F64, DType::I64) => (most as f64).next_down(),
        (DType::F32, DType::I32 | DType::I64) => f64::from((most as f32).next_down()),
        _ => most as f64,
    };
    x.clip_by_value(least, most)
}

/// What `adjust` makes of the images as floats from 0 to 1 (floats as they are), in their own type.
fn as_floats(images: &Tensor, adjust: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let floats = match images.dtype() {
        DType::F16 | DType::F32 => images.clone(),
        _ => convert_image_dtype(images, DType::F32, false)?,
    };
    convert_image_dtype(&adjust(&floats)?, images.dtype(), true)
}

/// Images with `delta` added, on the scale of floats from 0 to 1; integers stay within their range. As
/// `tf.image.adjust_brightness`. Fails for bool.
pub fn adjust_brightness(images: &Tensor, delta: f64) -> Result<Tensor> {
    as_floats(images, |x| x.add_scalar(delta))
}

/// Images `[h,w,c]` or `[n,h,w,c]` with each value's distance from the mean of its image and channel multiplied by `factor`; integers
/// stay within their range. As `tf.image.adjust_contrast`. Fails for other ranks and bool.
pub fn adjust_contrast(images: &Tensor, factor: f64) -> Result<Tensor> {
    let axis = rows_axis(images)? as i32;
    as_floats(images, |x| {
        let mean = x.mean(&[axis, axis + 1], true)?;
        x.sub(&mean)?.mul_scalar(factor)?.add(&mean)
    })
}

/// `gain · x^gamma` of images on the scale of floats from 0 to 1; integers stay within their range. As `tf.image.adjust_gamma`.
/// Fails for bool and where `gamma` is negative.
pub fn adjust_gamma(images: &Tensor, gamma: f64, gain: f64) -> Result<Tensor> {
    if gamma.is_nan() || gamma < 0.0 {
        return Err(Error::message(format!("gamma should be a non-negative real number, not {gamma}")));
    }
    as_floats(images, |x| x.pow(&x.like(gamma)?)?.mul_scalar(gain))
}

/// Images `[…,3]` of red, green and blue as brightness `[…,1]`. As `tf.image.rgb_to_grayscale`. Fails where the last dimension is
/// not 3.
pub fn rgb_to_grayscale(images: &Tensor) -> Result<Tensor> {
    if images.shape().back(0) != Some(3) {
        return Err(Error::message(format!("images of red, green and blue have a last dimension of 3, not {}", images.tensor_type())));
    }
    let floats = convert_image_dtype(images, DType::F32, false)?;
    let weights = Tensor::new(&floats.device()?, &[0.2989f32, 0.5870, 0.1140], &[3])?;
    convert_image_dtype(&floats.mul(&weights)?.sum(&[-1], true)?, images.dtype(), false)
}

/// Images `[…,1]` of brightness as red, green and blue `[…,3]`. As `tf.image.grayscale_to_rgb`. Fails where the last dimension is
/// not 1.
pub fn grayscale_to_rgb(images: &Tensor) -> Result<Tensor> {
    if images.shape().back(0) != Some(1) {
        return Err(Error::message(format!("images of brightness have a last dimension of 1, not {}", images.tensor_type())));
    }
    let mut multiples = vec![1; images.shape().rank()];
    multiples.pop();
    multiples.push(3);
    images.tile(&multiples)
}

/// Images `[h,w,c]` or `[n,h,w,c]` as f32, each with mean 0 and deviation 1. As `tf.image.per_image_standardization`: a deviation of
/// less than `1/√(h·w·c)` counts as that. Fails for other ranks.
pub fn per_image_standardization(images: &Tensor) -> Result<Tensor> {
    rows_axis(images)?;
    let axes = [-1, -2, -3];
    let x = images.cast(DType::F32)?;
    let count: u64 = x.dims().iter().rev().take(3).map(|&dim| u64::from(dim)).product();
    let least = 1.0 / (count.max(1) as f64).sqrt();
    let deviation = x.std(&axes, true)?;
    x.sub(&x.mean(&axes, true)?)?.div(&deviation.maximum(&deviation.like(least)?)?)
}
