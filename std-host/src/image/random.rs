//! Changes by chance, which a stream of random numbers decides: the same stream always decides the same.
//!
//! As the functions of `tf.image` of the same names: what may come out, and how often, is the same; which seed gives what is not.

use super::geometry::{crop_to_bounding_box, flip_left_right, flip_up_down};
use super::{adjust_brightness, adjust_contrast, rows_axis, sides};
use gradlet_core::random::Stream;
use gradlet_core::{Error, Result, Tensor};

/// Each image, of `[h,w,c]` or `[n,h,w,c]`, flipped left to right or not, as `stream` decides: one in two.
///
/// In a training loop, `scope.next_stream()` gives a stream that was not had before; a pipeline makes them of the element's number.
///
/// ```
/// use gradlet::random::Stream;
/// use gradlet::{Tensor, image};
/// let x = Tensor::new(&gradlet::cpu(), &[1u8, 2], &[1, 2, 1])?;
/// let flip = |stream| image::stateless_random_flip_left_right(&x, Stream { key: 7, stream })?.to_vec::<u8>();
/// assert_eq!(flip(3)?, flip(3)?);
/// let flipped = (0..100).filter(|&stream| flip(stream).is_ok_and(|x| x == [2, 1])).count();
/// assert!((30..70).contains(&flipped));
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn stateless_random_flip_left_right(images: &Tensor, stream: Stream) -> Result<Tensor> {
    flip_some(images, stream, flip_left_right)
}

/// Each image, of `[h,w,c]` or `[n,h,w,c]`, flipped upside down or not, as `stream` decides: one in two.
pub fn stateless_random_flip_up_down(images: &Tensor, stream: Stream) -> Result<Tensor> {
    flip_some(images, stream, flip_up_down)
}

fn flip_some(images: &Tensor, stream: Stream, flip: fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if rows_axis(images)? == 0 {
        return if stream.uniform(1)[0] < 0.5 { flip(images) } else { Ok(images.clone()) };
    }
    let chances = stream.uniform(images.dims()[0] as usize);
    let one = |(image, chance): (Tensor, f32)| if chance < 0.5 { flip(&image) } else { Ok(image) };
    let flipped = images.unstack(0)?.into_iter().zip(chances).map(one).collect::<Result<Vec<_>>>()?;
    if flipped.is_empty() { Ok(images.clone()) } else { Tensor::stack(&flipped, 0) }
}

/// A part of images `[h,w,c]` or `[n,h,w,c]` with `size` rows and columns; `stream` decides where, and every place is as likely.
///
/// Fails where the images are smaller.
pub fn stateless_random_crop(images: &Tensor, size: [u32; 2], stream: Stream) -> Result<Tensor> {
    let from = sides(images)?;
    let words = stream.block(0);
    // The high half of word × places is a number below `places`.
    let offset = [0, 1].map(|at| ((u64::from(words[at]) * (u64::from(from[at].saturating_sub(size[at])) + 1)) >> 32) as u32);
    crop_to_bounding_box(images, offset, size)
}

/// Images with a number from `-max_delta` to below `max_delta` added, as [`adjust_brightness`] adds it.
///
/// Fails where `max_delta` is negative.
pub fn stateless_random_brightness(images: &Tensor, max_delta: f64, stream: Stream) -> Result<Tensor> {
    if max_delta.is_nan() || max_delta < 0.0 {
        return Err(Error::message(format!("max_delta must be non-negative, not {max_delta}")));
    }
    adjust_brightness(images, max_delta * (2.0 * f64::from(stream.uniform(1)[0]) - 1.0))
}

/// Images with a contrast of `lower` to below `upper` times theirs, as [`adjust_contrast`] makes it.
///
/// Fails where `lower` is negative or not below `upper`.
pub fn stateless_random_contrast(images: &Tensor, lower: f64, upper: f64, stream: Stream) -> Result<Tensor> {
    if !(0.0 <= lower && lower < upper) {
        return Err(Error::message(format!("lower must be non-negative and below upper: not {lower} and {upper}")));
    }
    adjust_contrast(images, lower + (upper - lower) * f64::from(stream.uniform(1)[0]))
}
