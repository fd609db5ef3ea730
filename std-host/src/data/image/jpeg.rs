//! JPEG decoder, based on `zune-jpeg`.

use super::decode::{Pixels, check};
use std::panic::{AssertUnwindSafe, catch_unwind};
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Maximum number of pixels per byte of a JPEG file: each block of 8 × 8 samples takes at least one bit.
const PIXELS_PER_BYTE: u64 = 8 * 64;

pub(super) fn decode(bytes: &[u8], channels: u32) -> Result<Pixels, String> {
    if channels == 4 {
        return Err("JPEG does not support 4 channels: use 0, 1 or 3".into());
    }
    let side = usize::from(u16::MAX);
    let options = DecoderOptions::new_fast().set_strict_mode(true).set_max_width(side).set_max_height(side);
    if scattered(bytes) {
        return Err("sequential JPEG files are not supported if components of different vertical sampling are in separate scans".into());
    }
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let damaged = |error| format!("the JPEG file is damaged: {error}");
    decoder.decode_headers().map_err(damaged)?;
    let info = decoder.info().ok_or("the JPEG file has no header")?;
    let channels = match (channels, info.components) {
        (0, 1) | (1, _) => 1,
        _ => 3,
    };
    let (height, width) = (u32::from(info.height), u32::from(info.width));
    let backed = u64::from(height) * u64::from(width) <= PIXELS_PER_BYTE * bytes.len() as u64;
    check("JPEG", [height, width], channels, backed)?;
    let to = if channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB };
    decoder.set_options(options.jpeg_set_out_colorspace(to));
    // The decoder is not guaranteed to be free of panics.
    let decoded = catch_unwind(AssertUnwindSafe(|| decoder.decode()));
    let pixels = decoded.unwrap_or(Err(DecodeErrors::FormatStatic("the decoder panicked"))).map_err(damaged)?;
    if !ends(bytes) {
        return Err("the JPEG file is cut short: it has no end marker".into());
    }
    if pixels.len() as u64 != u64::from(height) * u64::from(width) * u64::from(channels) {
        return Err(format!("the JPEG file decoded to {} bytes, not to {width} × {height} pixels of {channels} channels", pixels.len()));
    }
    Ok(Pixels { height, width, channels, bytes: pixels })
}

/// True if the file contains an end marker, `ff d9`. These bytes do not occur in coded data.
fn ends(bytes: &[u8]) -> bool {
    bytes.windows(2).rev().any(|pair| pair == [0xff, 0xd9])
}

/// True if the file is sequential and stores components of different vertical sampling in separate scans. The decoder omits pixels of such
/// files. Any bytes that look like a frame or scan header count as one, at any position.
fn scattered(bytes: &[u8]) -> bool {
    let headers = |markers: &'static [u8]| {
        let begins = bytes.windows(2).enumerate().filter(|(_, pair)| pair[0] == 0xff && markers.contains(&pair[1]));
        begins.map(|(at, _)| &bytes[at + 2..])
    };
    // Frame header: length (2 bytes), bits, height (2 bytes), width (2 bytes), number of components. Then, for each component: identifier,
    // sampling factors, quantization table.
    let coarse = headers(&[0xc0, 0xc1]).find_map(|frame| {
        let &[_, _, 8, _, _, _, _, count @ 1..=4, ref rest @ ..] = frame else { return None };
        let mut rows = rest.chunks_exact(3).take(count.into()).map(|component| component[1] & 0x0f);
        let first = rows.next()?;
        rows.any(|other| other != first).then_some(count)
    });
    coarse
        .is_some_and(|count| headers(&[0xda]).any(|scan| matches!(scan, [0, length, some, ..] if *some < count && *length == 6 + 2 * some)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    fn file(sampling: SamplingFactor, apart: bool) -> Vec<u8> {
        let pixels: Vec<u8> = (0..41 * 33 * 3u32).map(|x| (x * x / 1000) as u8).collect();
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 90);
        encoder.set_sampling_factor(sampling);
        encoder.set_optimized_huffman_tables(apart);
        encoder.encode(&pixels, 41, 33, ColorType::Rgb).unwrap();
        file
    }

    #[test]
    fn scans_of_their_own() {
        let pixels = |apart| decode(&file(SamplingFactor::F_1_1, apart), 0).unwrap().bytes;
        assert!(pixels(true) == pixels(false));
        assert!(decode(&file(SamplingFactor::F_2_2, false), 0).is_ok());
        let error = decode(&file(SamplingFactor::F_2_2, true), 0).err().unwrap();
        assert!(error.contains("separate scans"), "{error}");
        // The decoder skips a stray byte between segments.
        let mut odd = file(SamplingFactor::F_2_2, true);
        let scan = odd.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
        odd.insert(scan, 0xfa);
        assert!(decode(&odd, 0).err().unwrap().contains("separate scans"));
    }

    #[test]
    fn damage_is_an_error() {
        let good = file(SamplingFactor::F_2_2, false);
        for length in 0..good.len() {
            assert!(decode(&good[..length.max(3)], 0).is_err(), "{length} of {}", good.len());
        }
        let frame = good.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        let mut large = good;
        large[frame + 5..frame + 9].fill(0xff);
        let error = decode(&large, 0).err().unwrap();
        assert!(error.contains("claims 65535 × 65535 pixels, which its bytes cannot hold"), "{error}");
    }
}
