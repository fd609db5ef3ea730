//! Operations that move pixels: flipping, rotating, cropping and padding. They support every element type.

use super::{rows_axis, sides};
use gradlet_core::ops::pad::PadMode;
use gradlet_core::{Error, Result, Tensor};

/// Flips images left to right. Images are `[h,w,c]` or `[n,h,w,c]`. Equivalent of `tf.image.flip_left_right`.
pub fn flip_left_right(images: &Tensor) -> Result<Tensor> {
    images.reverse(&[rows_axis(images)? as i32 + 1])
}

/// Flips images upside down. Images are `[h,w,c]` or `[n,h,w,c]`. Equivalent of `tf.image.flip_up_down`.
pub fn flip_up_down(images: &Tensor) -> Result<Tensor> {
    images.reverse(&[rows_axis(images)? as i32])
}

/// Exchanges the rows and columns of images. Images are `[h,w,c]` or `[n,h,w,c]`. Equivalent of `tf.image.transpose`.
pub fn transpose(images: &Tensor) -> Result<Tensor> {
    match rows_axis(images)? {
        0 => images.transpose(&[1, 0, 2]),
        _ => images.transpose(&[0, 2, 1, 3]),
    }
}

/// Rotates images counter-clockwise by `k` times 90°, or clockwise if `k` is negative. Images are `[h,w,c]` or `[n,h,w,c]`. Equivalent of
/// `tf.image.rot90`.
///
/// ```
/// use gradlet::{Tensor, image};
/// let x = Tensor::new(&gradlet::cpu(), &[1u8, 2, 3, 4], &[2, 2, 1])?;
/// assert_eq!(image::rot90(&x, 1)?.to_vec::<u8>()?, [2, 4, 1, 3]);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn rot90(images: &Tensor, k: i32) -> Result<Tensor> {
    match k.rem_euclid(4) {
        0 => rows_axis(images).map(|_| images.clone()),
        1 => transpose(&flip_left_right(images)?),
        2 => flip_up_down(&flip_left_right(images)?),
        _ => flip_left_right(&transpose(images)?),
    }
}

/// Crops images to `size` rows and columns, with the upper left corner at row and column `offset`. Images are `[h,w,c]` or `[n,h,w,c]`.
/// Equivalent of `tf.image.crop_to_bounding_box`.
///
/// Fails if a size is 0, or if the crop extends beyond the images.
pub fn crop_to_bounding_box(images: &Tensor, offset: [u32; 2], size: [u32; 2]) -> Result<Tensor> {
    let (axis, from) = (rows_axis(images)?, sides(images)?);
    let outside = |at: usize| size[at] == 0 || offset[at].checked_add(size[at]).is_none_or(|end| end > from[at]);
    if outside(0) || outside(1) {
        let text = format!("{} does not contain a crop of {size:?} rows and columns at {offset:?}", images.tensor_type());
        return Err(Error::message(text));
    }
    let mut begin = vec![0; images.shape().rank()];
    let mut sizes = vec![-1; images.shape().rank()];
    begin[axis..axis + 2].copy_from_slice(&offset);
    sizes[axis..axis + 2].copy_from_slice(&size.map(i64::from));
    images.slice(&begin, &sizes)
}

/// Pads images with zeros to `size` rows and columns. Their upper left corner moves to row and column `offset`. Images are `[h,w,c]` or
/// `[n,h,w,c]`. Equivalent of `tf.image.pad_to_bounding_box`.
///
/// Fails if the images do not fit there.
pub fn pad_to_bounding_box(images: &Tensor, offset: [u32; 2], size: [u32; 2]) -> Result<Tensor> {
    let (axis, from) = (rows_axis(images)?, sides(images)?);
    let after = |at: usize| size[at].checked_sub(offset[at]).and_then(|left| left.checked_sub(from[at]));
    let (Some(below), Some(right)) = (after(0), after(1)) else {
        let text = format!("{} does not fit at {offset:?} in images of {size:?} rows and columns", images.tensor_type());
        return Err(Error::message(text));
    };
    let mut paddings = vec![(0, 0); images.shape().rank()];
    paddings[axis..axis + 2].copy_from_slice(&[(offset[0], below), (offset[1], right)]);
    images.pad(&paddings, PadMode::Constant(0.0))
}

/// Crops or pads images around their centre to `size` rows and columns. The padding is zeros. Images are `[h,w,c]` or `[n,h,w,c]`.
/// Equivalent of `tf.image.resize_with_crop_or_pad`. Fails if a size is 0.
pub fn resize_with_crop_or_pad(images: &Tensor, size: [u32; 2]) -> Result<Tensor> {
    let from = sides(images)?;
    let both = |of: fn(i64) -> i64| [0, 1].map(|at| of(i64::from(size[at]) - i64::from(from[at])).max(0) as u32);
    let kept = [size[0].min(from[0]), size[1].min(from[1])];
    let cropped = crop_to_bounding_box(images, both(|more| (-more).div_euclid(2)), kept)?;
    pad_to_bounding_box(&cropped, both(|more| more.div_euclid(2)), size)
}

/// Crops images around their centre to `fraction` of each side. Images are `[h,w,c]` or `[n,h,w,c]`. Equivalent of `tf.image.central_crop`.
///
/// Fails unless `fraction` is greater than 0 and at most 1.
pub fn central_crop(images: &Tensor, fraction: f64) -> Result<Tensor> {
    if !(fraction > 0.0 && fraction <= 1.0) {
        return Err(Error::message(format!("the fraction must be greater than 0 and at most 1, not {fraction}")));
    }
    let from = sides(images)?;
    let offset = from.map(|side| ((f64::from(side) - f64::from(side) * fraction) / 2.0) as u32);
    crop_to_bounding_box(images, offset, [from[0] - 2 * offset[0], from[1] - 2 * offset[1]])
}
