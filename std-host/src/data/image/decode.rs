//! From the bytes of a file to pixels.

use super::{jpeg, png};
use gradlet_core::{Error, Result, Tensor};

/// The most bytes of pixels that are decoded: what a malicious file can cost.
pub const LIMIT: u64 = 1 << 30;

/// Decoded pixels, row by row.
pub(super) struct Pixels {
    pub height: u32,
    pub width: u32,
    pub channels: u32,
    pub bytes: Vec<u8>,
}

/// The image in a JPEG or PNG file, whichever `bytes` are: u8 `[height, width, channels]`.
///
/// `channels` is 0 for as many as the file has (1 is grey, 2 grey and alpha, 3 RGB, 4 RGBA), or 1, 3 or 4 to convert to those; a
/// JPEG file has no alpha. Samples of 16 bits give their upper 8, palettes are looked up. As `tf.io.decode_image`.
///
/// PNG pixels are TensorFlow's, bit for bit. JPEG pixels are decoded by exact transforms, where TensorFlow's default takes faster,
/// coarser ones: `dct_method="INTEGER_ACCURATE"` there comes closest.
///
/// Fails where the file is damaged, cut short or of another format, and where it claims more pixels than its bytes can hold or than
/// make [`LIMIT`] bytes; nothing is allocated for such a claim.
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

/// As [`decode_image`], of which it is another name: as in TensorFlow, it takes PNG files too.
pub fn decode_jpeg(bytes: &[u8], channels: u32) -> Result<Tensor> {
    decode_image(bytes, channels)
}

/// As [`decode_image`], of which it is another name: as in TensorFlow, it takes JPEG files too.
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
    format!("the input is {known}: JPEG and PNG are read")
}

/// Fails where the file's bytes cannot hold the pixels that it claims, or these make more than [`LIMIT`] bytes.
pub(super) fn check(name: &str, [height, width]: [u32; 2], channels: u32, backed: bool) -> Result<(), String> {
    let claim = format!("the {name} file claims {width} × {height} pixels");
    if !backed {
        return Err(format!("{claim}, which its bytes cannot hold: it is cut short or damaged"));
    }
    if u64::from(height) * u64::from(width) > LIMIT / u64::from(channels) {
        return Err(format!("{claim} of {channels} channels, which make more than {LIMIT} bytes"));
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
        assert!(refused(b"GIF89a...", 0).contains("a GIF file: JPEG and PNG are read"));
        assert!(refused(b"RIFF....WEBP", 0).contains("WebP"));
        assert!(refused(b"hello", 0).contains("unknown image file format"));
        assert!(refused(b"hello", 2).contains("`channels` must be 0, 1, 3 or 4 but got 2"));
    }
}
