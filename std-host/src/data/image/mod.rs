//! Image operations with the names and rules of `tf.image`: decoding, encoding, resizing, cropping and adjusting.
//!
//! An image is a tensor `[height, width, channels]`, and a batch of images is `[images, height, width, channels]`. A function that accepts
//! both returns the same rank as its argument. Functions that only move pixels or compute with them are composed of ops, so they also work
//! in tapes and traces.
//!
//! ```
//! use gradlet::image::{self, ResizeMethod};
//! use gradlet::{DType, Tensor};
//! let picture = Tensor::new(&gradlet::cpu(), &[10u8, 20, 30, 40, 50, 60], &[1, 2, 3])?;
//! let file = image::encode_png(&picture)?;
//! let decoded = image::decode_image(&file, 0)?;
//! assert_eq!(decoded.to_vec::<u8>()?, picture.to_vec::<u8>()?);
//! let larger = image::resize(&decoded, [4, 4], ResizeMethod::Bilinear)?;
//! assert_eq!((larger.dtype(), larger.dims()), (DType::F32, &[4, 4, 3][..]));
//! # Ok::<(), gradlet::Error>(())
//! ```

#![doc(alias = "tf.image")]

mod adjust;
#[cfg(feature = "image")]
mod decode;
#[cfg(feature = "image")]
mod encode;
mod geometry;
#[cfg(feature = "image")]
mod jpeg;
#[cfg(feature = "image")]
mod png;
mod random;
mod resize;
mod sampling;

pub use adjust::{
    adjust_brightness, adjust_contrast, adjust_gamma, convert_image_dtype, grayscale_to_rgb, per_image_standardization, rgb_to_grayscale,
};
#[cfg(feature = "image")]
pub use decode::{LIMIT, decode_image, decode_jpeg, decode_png};
#[cfg(feature = "image")]
pub use encode::{encode_jpeg, encode_png};
pub use geometry::{
    central_crop, crop_to_bounding_box, flip_left_right, flip_up_down, pad_to_bounding_box, resize_with_crop_or_pad, rot90, transpose,
};
pub use random::{
    stateless_random_brightness, stateless_random_contrast, stateless_random_crop, stateless_random_flip_left_right,
    stateless_random_flip_up_down,
};
pub use resize::{ResizeMethod, ResizeOptions, resize, resize_with_pad};

use gradlet_core::{Error, Result, Tensor};

/// Returns the axis of the rows: 0 for an image, 1 for a batch of images.
fn rows_axis(images: &Tensor) -> Result<usize> {
    match images.shape().rank() {
        rank @ (3 | 4) => Ok(rank - 3),
        _ => Err(Error::message(format!("an image must have 3 dimensions and a batch of images 4, not {}", images.tensor_type()))),
    }
}

/// Returns the number of rows and columns of images.
fn sides(images: &Tensor) -> Result<[u32; 2]> {
    let axis = rows_axis(images)?;
    Ok([images.dims()[axis], images.dims()[axis + 1]])
}
