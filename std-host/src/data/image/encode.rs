//! Encoding of image files.

use gradlet_core::{DType, Error, Result, Tensor};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// Encodes an image as a PNG file. It is u8 `[height, width, channels]`, with 1 (grey), 2 (grey and alpha), 3 (RGB) or 4 (RGBA) channels.
/// Equivalent of `tf.io.encode_png`.
pub fn encode_png(image: &Tensor) -> Result<Vec<u8>> {
    let [height, width, channels] = picture(image)?;
    let color = match channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        4 => png::ColorType::Rgba,
        _ => return Err(Error::message(format!("a PNG file must have 1 to 4 channels, not {channels}"))),
    };
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let wrong = |error| Error::message(format!("cannot encode {} as PNG: {error}", image.tensor_type()));
    let mut writer = encoder.write_header().map_err(wrong)?;
    writer.write_image_data(&image.bytes()?).map_err(wrong)?;
    writer.finish().map_err(wrong)?;
    Ok(file)
}

/// Encodes an image as a JPEG file. It is u8 `[height, width, channels]`, with 1 (grey) or 3 (RGB) channels. `quality` is 1 to 100;
/// TensorFlow's default is 95. Colours have half the resolution of brightness. Equivalent of `tf.io.encode_jpeg`.
///
/// ```
/// use gradlet::{Tensor, image};
/// let grey = Tensor::full(&gradlet::cpu(), 77u8, &[20, 30, 1])?;
/// let file = image::encode_jpeg(&grey, 95)?;
/// assert_eq!(image::decode_jpeg(&file, 3)?.dims(), [20, 30, 3]);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn encode_jpeg(image: &Tensor, quality: u8) -> Result<Vec<u8>> {
    let [height, width, channels] = picture(image)?;
    let (Ok(height), Ok(width)) = (u16::try_from(height), u16::try_from(width)) else {
        return Err(Error::message(format!("a JPEG file can have at most 65535 rows and columns, not {}", image.tensor_type())));
    };
    let color = match channels {
        1 => ColorType::Luma,
        3 => ColorType::Rgb,
        _ => return Err(Error::message(format!("a JPEG file must have 1 or 3 channels, not {channels}"))),
    };
    if !(1..=100).contains(&quality) {
        return Err(Error::message(format!("the quality of a JPEG file must be 1 to 100, not {quality}")));
    }
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, quality);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    let wrong = |error| Error::message(format!("cannot encode {} as JPEG: {error}", image.tensor_type()));
    encoder.encode(&image.bytes()?, width, height, color).map_err(wrong)?;
    Ok(file)
}

fn picture(image: &Tensor) -> Result<[u32; 3]> {
    match image.dims() {
        &[height, width, channels] if image.dtype() == DType::U8 && height > 0 && width > 0 => Ok([height, width, channels]),
        _ => Err(Error::message(format!("expected a non-empty image u8[height,width,channels], but got {}", image.tensor_type()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image::decode_image;

    #[test]
    fn what_is_encoded_is_decoded() {
        for channels in 1..=4 {
            let pixels: Vec<u8> = (0..35 * channels).map(|x| (x * 7) as u8).collect();
            let image = Tensor::new(&crate::compute::devices::cpu(), &pixels, &[5, 7, channels]).unwrap();
            let decoded = decode_image(&encode_png(&image).unwrap(), 0).unwrap();
            assert_eq!((decoded.dims(), decoded.to_vec::<u8>().unwrap()), (&[5, 7, channels][..], pixels));
        }
        let image = Tensor::full(&crate::compute::devices::cpu(), 100u8, &[9, 17, 3]).unwrap();
        let decoded = decode_image(&encode_jpeg(&image, 95).unwrap(), 0).unwrap().to_vec::<u8>().unwrap();
        assert!(decoded.len() == 9 * 17 * 3 && decoded.iter().all(|&x| x.abs_diff(100) <= 1));
    }

    #[test]
    fn other_tensors_are_refused() {
        let refused =
            |dims: &[u32]| encode_jpeg(&Tensor::full(&crate::compute::devices::cpu(), 0u8, dims).unwrap(), 95).unwrap_err().to_string();
        assert!(refused(&[2, 2, 4]).contains("1 or 3 channels"));
        assert!(refused(&[2, 2]).contains("u8[height,width,channels]"));
        assert!(refused(&[70_000, 1, 1]).contains("65535"));
        assert!(encode_png(&Tensor::full(&crate::compute::devices::cpu(), 0f32, &[1, 1, 1]).unwrap()).is_err());
    }
}
