//! Images: decoding and encoding, resizing, cropping, adjusting. As `tf.image`, with its rules and names.
//!
//! An image is a tensor `[height, width, channels]`, a batch of them `[images, height, width, channels]`; where both are taken,
//! the result has the rank of what was given. What only moves pixels or computes with them is composed of ops: it works in tapes
//! and traces, too.
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

/// The axis of the rows: 0 of an image, 1 of a batch of images.
fn rows_axis(images: &Tensor) -> Result<usize> {
    match images.shape().rank() {
        rank @ (3 | 4) => Ok(rank - 3),
        _ => Err(Error::message(format!("images have 3 dimensions, batches of them 4: not {}", images.tensor_type()))),
    }
}

/// The rows and columns of images.
fn sides(images: &Tensor) -> Result<[u32; 2]> {
    let axis = rows_axis(images)?;
    Ok([images.dims()[axis], images.dims()[axis + 1]])
}
