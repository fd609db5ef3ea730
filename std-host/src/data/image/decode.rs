//! Decoding of image files.

use super::{jpeg, png};
use gradlet_core::{Error, Result, Tensor};

/// Maximum size of decoded pixels, in bytes. It limits the memory that a malicious file can claim.
pub const LIMIT: u64 = 1 << 30;

/// Decoded pixels, row by row.
pub(super) struct Pixels {
    pub height: u32,
    pub width: u32,
    pub channels: u32,
    pub bytes: Vec<u8>,
}

/// Decodes a JPEG or PNG file to u8 `[height, width, channels]`. The first bytes determine the format.
///
/// `channels` is the number of channels of the result: 0 for those of the file (1 is grey, 2 is grey and alpha, 3 is RGB, 4 is RGBA), or 1,
/// 3 or 4. A JPEG file has no alpha, so 4 fails for it. 16-bit samples are reduced to their upper 8 bits, and palette indices are replaced
/// by their colours. Equivalent of `tf.io.decode_image`.
///
/// PNG pixels match TensorFlow's bit for bit. JPEG pixels are decoded with exact transforms, while TensorFlow's default uses faster, less
/// accurate ones. `dct_method="INTEGER_ACCURATE"` in TensorFlow is closest.
///
/// Fails if the file is damaged, truncated or of another format. Also fails if its header claims more pixels than its bytes can hold, or
/// more than [`LIMIT`] bytes of pixels. In that case no memory is allocated for the pixels.
pub fn decode_image(bytes: &[u8], channels: u32) -> Result<Tensor> {
    if !matches!(channels, 0 | 1 | 3 | 4) {
        return Err(Error::message(format!("`channels` must be 0, 1, 3 or 4 but got {channels}")));
    }
    let pixels = match bytes {
        [0xff, 0xd8, 0xff, ..] => jpeg::decode(bytes, channels),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => png::decode(bytes, channels),
        _ => Err(unknown(bytes)),
    };
    let Pixels { height, width, channels, bytes } = pixels.map_err(Error::message)?;
    Tensor::new(&crate::compute::devices::cpu(), &bytes, &[height, width, channels])
}

/// Decodes an image file. An alias of [`decode_image`]: as in TensorFlow, PNG files are accepted too.
pub fn decode_jpeg(bytes: &[u8], channels: u32) -> Result<Tensor> {
    decode_image(bytes, channels)
}

/// Decodes an image file. An alias of [`decode_image`]: as in TensorFlow, JPEG files are accepted too.
pub fn decode_png(bytes: &[u8], channels: u32) -> Result<Tensor> {
    decode_image(bytes, channels)
}

fn unknown(bytes: &[u8]) -> String {
    let known = match bytes {
        [] => return "the input is empty: it must be a JPEG or PNG file".into(),
        [b'G', b'I', b'F', b'8', ..] => "a GIF file",
        [b'B', b'M', ..] => "a BMP file",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "a WebP file",
        _ => "of an unknown image file format",
    };
    format!("the input is {known}: only JPEG and PNG are supported")
}

/// Fails if the header claims more pixels than the bytes of the file can hold (`backed` is false), or more than [`LIMIT`] bytes of pixels.
pub(super) fn check(name: &str, [height, width]: [u32; 2], channels: u32, backed: bool) -> Result<(), String> {
    let claim = format!("the {name} file claims {width} × {height} pixels");
    if !backed {
        return Err(format!("{claim}, which its bytes cannot hold: it is cut short or damaged"));
    }
    if u64::from(height) * u64::from(width) > LIMIT / u64::from(channels) {
        return Err(format!("{claim} of {channels} channels, which exceeds the limit of {LIMIT} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8], channels: u32) -> String {
        decode_image(bytes, channels).unwrap_err().to_string()
    }

    #[test]
    fn other_files_are_named() {
        assert!(refused(b"", 0).contains("empty"));
        assert!(refused(b"GIF89a...", 0).contains("a GIF file: only JPEG and PNG are supported"));
        assert!(refused(b"RIFF....WEBP", 0).contains("WebP"));
        assert!(refused(b"hello", 0).contains("unknown image file format"));
        assert!(refused(b"hello", 2).contains("`channels` must be 0, 1, 3 or 4 but got 2"));
    }
}
