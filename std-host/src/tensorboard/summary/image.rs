//! Encoding of images for TensorBoard.

#[cfg(feature = "image")]
use crate::data::image::encode_png;
use crate::values::strings::Strings;
use gradlet_core::{DType, Error, Result, Shape, Tensor, TensorType};

/// Default number of images per summary, as in TensorFlow.
pub(super) const MAX_OUTPUTS: u32 = 3;

/// Encodes the first `most` of `images`, of shape `[images, height, width, channels]`. The result has the width, the height, and a
/// PNG file for each image.
pub(super) fn images(images: &Tensor, most: u32) -> Result<Strings> {
    let &[count, height, width, channels @ 1..=4] = images.dims() else {
        return Err(Error::message(format!(
            "images must have the shape [images, height, width, channels] with 1 to 4 channels, not {}",
            images.tensor_type()
        )));
    };
    let size = [height, width, channels].iter().map(|&size| size as usize).product::<usize>();
    let shown = count.min(most);
    let first = TensorType::new(images.dtype(), Shape::new(&[shown, height, width, channels])?);
    let bytes = &images.bytes()?[..shown as usize * size * images.dtype().size()];
    let samples = to_u8(&Tensor::from_bytes(&crate::compute::devices::cpu(), first, bytes)?)?;
    let tensor_type = TensorType::new(DType::U8, Shape::new(&[height, width, channels])?);
    let mut strings = vec![width.to_string().into_bytes(), height.to_string().into_bytes()];
    for index in 0..shown as usize {
        let pixels = &samples[index * size..(index + 1) * size];
        strings.push(encode_png(&Tensor::from_bytes(&crate::compute::devices::cpu(), tensor_type, pixels)?)?);
    }
    Ok(Strings::vector(strings))
}

/// Replaces the encoder if the feature `image` is off.
#[cfg(not(feature = "image"))]
fn encode_png(_: &Tensor) -> Result<Vec<u8>> {
    Err(Error::message("images in summaries need gradlet's feature `image`"))
}

/// Converts samples to the range 0 to 255 as TensorFlow does. Floats from 0 to 1 are scaled to the range; integers are shifted right.
fn to_u8(images: &Tensor) -> Result<Vec<u8>> {
    Ok(match images.dtype() {
        DType::U8 => images.to_vec()?,
        // TensorFlow adds 0.5 before it truncates, and computes in the element type of the images.
        DType::F64 | DType::F32 | DType::F16 | DType::Bf16 => {
            let scaled = images.mul(&images.like(255.5)?)?.cast(DType::F64)?;
            scaled.to_vec::<f64>()?.into_iter().map(|sample| sample as u8).collect()
        }
        DType::I8 => images.to_vec::<i8>()?.iter().map(|&sample| 2 * sample.max(0) as u8).collect(),
        DType::I16 => images.to_vec::<i16>()?.iter().map(|sample| (sample >> 7).max(0) as u8).collect(),
        DType::I32 => images.to_vec::<i32>()?.iter().map(|sample| (sample >> 23).max(0) as u8).collect(),
        DType::I64 => images.to_vec::<i64>()?.iter().map(|sample| (sample >> 55).max(0) as u8).collect(),
        DType::Bool => return Err(Error::message("images must have numeric elements, not booleans")),
    })
}

#[cfg(all(test, feature = "image"))]
mod tests {
    use super::*;
    use crate::data::image::decode_image;

    #[test]
    fn floats_fill_the_range() {
        let device = crate::compute::devices::cpu();
        let tensor = Tensor::new(&device, &[-1.0f32, 0.0, 0.5, 0.998, 1.0, 7.0], &[1, 1, 6, 1]).unwrap();
        let strings = images(&tensor, 3).unwrap();
        assert_eq!(strings.values()[..2], ["6", "1"]);
        assert_eq!(decode_image(&strings.values()[2], 1).unwrap().to_vec::<u8>().unwrap(), [0, 0, 127, 254, 255, 255]);
        let deep = Tensor::new(&device, &[i32::MIN, -1, 1 << 23, i32::MAX], &[4, 1, 1, 1]).unwrap();
        let strings = images(&deep, 9).unwrap();
        let samples: Vec<u8> = strings.values()[2..].iter().map(|png| decode_image(png, 1).unwrap().to_vec::<u8>().unwrap()[0]).collect();
        assert_eq!(samples, [0, 0, 1, 255]);
    }

    #[test]
    fn other_shapes_are_refused() {
        for dims in [&[2, 2, 1][..], &[1, 2, 2, 5]] {
            let error = images(&Tensor::full(&crate::compute::devices::cpu(), 0u8, dims).unwrap(), 3).unwrap_err().to_string();
            assert!(error.contains("[images, height, width, channels] with 1 to 4 channels"), "{error}");
        }
    }
}
