//! PNG decoder, based on `png`.

use super::decode::{Pixels, check};
use png::{ColorType, DecodeOptions, Decoder, InterlaceInfo, Transformations, expand_interlaced_row};
use std::io::Cursor;

/// Maximum number of decompressed bytes per compressed byte: the limit of the DEFLATE format.
const MOST: u64 = 1032;
/// Bytes added to the file size for the decoder's memory limit, because it needs buffers even for an empty file.
const SMALL: usize = 1 << 10;

pub(super) fn decode(bytes: &[u8], channels: u32) -> Result<Pixels, String> {
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    let mut decoder = Decoder::new_with_options(Cursor::new(bytes), options);
    decoder.set_limits(png::Limits { bytes: (bytes.len() + SMALL).saturating_mul(MOST as usize) });
    decoder.set_transformations(Transformations::EXPAND);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let damaged = |error| format!("the PNG file is damaged: {error}");
    let header = decoder.read_header_info().map_err(damaged)?;
    let (height, width) = (header.height, header.width);
    // An uncompressed row begins with a byte for its filter type.
    let row = 1 + (u64::from(width) * header.bits_per_pixel() as u64).div_ceil(8);
    check("PNG", [height, width], 4, u64::from(height).saturating_mul(row) <= MOST * bytes.len() as u64)?;
    let mut reader = decoder.read_info().map_err(damaged)?;
    let info = reader.info();
    let natural = match (info.color_type, &info.trns) {
        (ColorType::Grayscale, _) => 1,
        (ColorType::GrayscaleAlpha, _) => 2,
        (ColorType::Rgb, _) | (ColorType::Indexed, None) => 3,
        (ColorType::Rgba, _) | (ColorType::Indexed, Some(_)) => 4,
    };
    let (color, depth) = reader.output_color_type();
    let wide = depth == png::BitDepth::Sixteen;
    let to = if channels == 0 { natural } else { channels as usize };
    // As in TensorFlow, opaque is the maximum sample of the file's bit depth, even if samples are widened to 8 bits.
    let opaque = u8::MAX >> (8 - (info.bit_depth as u8).min(8));
    let convert = Convert { from: color.samples(), to, wide, opaque };
    let mut pixels = Vec::new();
    let mut passes = Vec::new();
    while let Some(row) = reader.next_interlaced_row().map_err(damaged)? {
        convert.row(row.data(), &mut pixels);
        if let InterlaceInfo::Adam7(pass) = row.interlace() {
            passes.push((*pass, row.data().len() / convert.bytes() * convert.to));
        }
    }
    reader.finish().map_err(damaged)?;
    let needed = height as usize * width as usize * convert.to;
    if pixels.len() != needed {
        return Err(format!("the PNG file decoded to {} bytes of pixels, not {needed}", pixels.len()));
    }
    if !passes.is_empty() {
        let mut whole = vec![0; needed];
        let mut rows = &pixels[..];
        for (pass, length) in passes {
            let (row, rest) = rows.split_at(length);
            expand_interlaced_row(&mut whole, width as usize * convert.to, row, &pass, 8 * convert.to as u8);
            rows = rest;
        }
        pixels = whole;
    }
    Ok(Pixels { height, width, channels: convert.to as u32, bytes: pixels })
}

/// Conversion from the samples of the file to the requested channels.
struct Convert {
    from: usize,
    to: usize,
    /// True if the decoder returns samples of 16 bits, false if it returns samples of 8 bits.
    wide: bool,
    /// Alpha value of the result for pixels whose file has no alpha channel.
    opaque: u8,
}

impl Convert {
    /// Returns the number of bytes of a pixel in a row of the file.
    fn bytes(&self) -> usize {
        self.from << usize::from(self.wide)
    }

    fn row(&self, row: &[u8], pixels: &mut Vec<u8>) {
        match (self.wide, self.from == self.to) {
            (false, true) => pixels.extend_from_slice(row),
            (false, false) => {
                row.chunks_exact(self.from).for_each(|pixel| self.pixel(pixel, grey(pixel.iter().map(|&x| x.into())), pixels))
            }
            (true, _) => row.chunks_exact(self.bytes()).for_each(|pixel| {
                let samples = pixel.as_chunks().0;
                let mut upper = [0; 4];
                upper.iter_mut().zip(samples).for_each(|(upper, sample): (_, &[u8; 2])| *upper = sample[0]);
                // Like libpng, rounds the grey value of 16-bit samples.
                let grey = grey_rounded(samples.iter().map(|&sample| u16::from_be_bytes(sample).into()));
                self.pixel(&upper[..self.from], (grey >> 8) as u8, pixels);
            }),
        }
    }

    fn pixel(&self, from: &[u8], grey: u8, pixels: &mut Vec<u8>) {
        let coloured = from.len() > 2;
        let alpha = if from.len().is_multiple_of(2) { from[from.len() - 1] } else { self.opaque };
        match (self.to, coloured) {
            (1, false) => pixels.push(from[0]),
            (1, true) => pixels.push(grey),
            (2, _) => pixels.extend([from[0], alpha]),
            (3, false) => pixels.extend([from[0]; 3]),
            (3, true) => pixels.extend_from_slice(&from[..3]),
            (_, false) => pixels.extend([from[0], from[0], from[0], alpha]),
            (_, true) => pixels.extend([from[0], from[1], from[2], alpha]),
        }
    }
}

/// Returns 2^15 times the luminance of a pixel: red, green and blue weighted by 0.299, 0.587 and 0.114, with the integer weights of
/// libpng. The caller rounds the sum and shifts it right by 15.
fn weighed(mut samples: impl Iterator<Item = u32>) -> u32 {
    let mut next = || samples.next().unwrap_or(0);
    next() * 9797 + next() * 19234 + next() * 3737
}

fn grey(samples: impl Iterator<Item = u32>) -> u8 {
    (weighed(samples) >> 15) as u8
}

fn grey_rounded(samples: impl Iterator<Item = u32>) -> u32 {
    (weighed(samples) + (1 << 14)) >> 15
}
