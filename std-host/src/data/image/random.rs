//! Random changes of images. A [`Stream`] of random numbers determines them: the same stream always leads to the same change.
//!
//! The functions are equivalents of the functions of the same names in `tf.image`. The possible results and their probabilities are the
//! same, but the result of a particular seed differs.

use super::geometry::{crop_to_bounding_box, flip_left_right, flip_up_down};
use super::{adjust_brightness, adjust_contrast, rows_axis, sides};
use gradlet_core::random::Stream;
use gradlet_core::{Error, Result, Tensor};

/// Flips each image left to right with probability 1/2, as `stream` determines. Images are `[h,w,c]` or `[n,h,w,c]`.
///
/// In a training loop, `scope.next_stream()` returns a new stream. In a pipeline, derive the stream from the number of the element.
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

/// Flips each image upside down with probability 1/2, as `stream` determines. Images are `[h,w,c]` or `[n,h,w,c]`.
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

/// Crops images to `size` rows and columns at a random position, which `stream` determines. All positions are equally probable. The images
/// of a batch are cropped at the same position. Images are `[h,w,c]` or `[n,h,w,c]`.
///
/// Fails if the images are smaller than `size`.
pub fn stateless_random_crop(images: &Tensor, size: [u32; 2], stream: Stream) -> Result<Tensor> {
    let from = sides(images)?;
    let words = stream.block(0);
    // The upper half of word × positions is a number less than `positions`.
    let offset = [0, 1].map(|at| ((u64::from(words[at]) * (u64::from(from[at].saturating_sub(size[at])) + 1)) >> 32) as u32);
    crop_to_bounding_box(images, offset, size)
}

/// Adds a random number from `-max_delta` (included) to `max_delta` (excluded) to images, like [`adjust_brightness`].
///
/// Fails if `max_delta` is negative.
pub fn stateless_random_brightness(images: &Tensor, max_delta: f64, stream: Stream) -> Result<Tensor> {
    if max_delta.is_nan() || max_delta < 0.0 {
        return Err(Error::message(format!("max_delta must be non-negative, not {max_delta}")));
    }
    adjust_brightness(images, max_delta * (2.0 * f64::from(stream.uniform(1)[0]) - 1.0))
}

/// Multiplies the contrast of images by a random factor from `lower` (included) to `upper` (excluded), like [`adjust_contrast`].
///
/// Fails if `lower` is negative or not less than `upper`.
pub fn stateless_random_contrast(images: &Tensor, lower: f64, upper: f64, stream: Stream) -> Result<Tensor> {
    if !(0.0 <= lower && lower < upper) {
        return Err(Error::message(format!("lower must be non-negative and below upper: not {lower} and {upper}")));
    }
    adjust_contrast(images, lower + (upper - lower) * f64::from(stream.uniform(1)[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams() -> impl Iterator<Item = Stream> {
        (0..400).map(|stream| Stream { key: 3, stream })
    }

    #[test]
    fn images_of_a_batch_flip_on_their_own() {
        let x = Tensor::new(&crate::compute::devices::cpu(), &[1u8, 2, 1, 2, 1, 2], &[3, 2, 1, 1]).unwrap();
        let mut flipped = [0; 3];
        for stream in streams() {
            let y = stateless_random_flip_up_down(&x, stream).unwrap().to_vec::<u8>().unwrap();
            flipped.iter_mut().zip(y.chunks(2)).for_each(|(count, image)| *count += usize::from(image == [2, 1]));
        }
        assert!(flipped.iter().all(|count| (160..240).contains(count)), "{flipped:?}");
    }

    #[test]
    fn every_part_is_as_likely() {
        let x = Tensor::new(&crate::compute::devices::cpu(), &[0u8, 1, 2, 3, 4, 5], &[2, 3, 1]).unwrap();
        let mut first = [0; 6];
        for stream in streams() {
            let part = stateless_random_crop(&x, [1, 2], stream).unwrap();
            assert_eq!(part.dims(), [1, 2, 1]);
            first[usize::from(part.to_vec::<u8>().unwrap()[0])] += 1;
        }
        assert!([0, 1, 3, 4].iter().all(|&at| (70..130).contains(&first[at])) && first[2] + first[5] == 0, "{first:?}");
        assert!(stateless_random_crop(&x, [3, 1], Stream { key: 0, stream: 0 }).is_err());
    }

    #[test]
    fn brightness_and_contrast_are_in_range() {
        let x = Tensor::new(&crate::compute::devices::cpu(), &[0.0f32, 1.0], &[1, 2, 1]).unwrap();
        let shifts: Vec<f32> =
            streams().map(|stream| stateless_random_brightness(&x, 0.5, stream).unwrap().to_vec::<f32>().unwrap()[0]).collect();
        let mean = shifts.iter().sum::<f32>() / 400.0;
        assert!(shifts.iter().all(|shift| (-0.5..0.5).contains(shift)) && mean.abs() < 0.06, "{mean}");
        for stream in streams() {
            let y = stateless_random_contrast(&x, 0.5, 2.0, stream).unwrap().to_vec::<f32>().unwrap();
            assert!((0.5..=2.0).contains(&(y[1] - y[0])), "{y:?}");
        }
        let stream = Stream { key: 0, stream: 0 };
        assert!(stateless_random_brightness(&x, -0.1, stream).is_err() && stateless_random_contrast(&x, 1.0, 1.0, stream).is_err());
    }
}
