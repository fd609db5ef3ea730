//! A block of a sorted string table: checksum, compression, keys and values.

use super::crc::{POLYNOMIAL, unmasked};
use crate::formats::tfrecord::masked_crc32c;
use std::borrow::Cow;
use std::ops::Range;

/// Size of a block's trailer, in bytes: 1 for the compression method, 4 for the checksum of the block and that byte.
pub const TRAILER: usize = 5;
const PLAIN: u8 = 0;
const SNAPPY: u8 = 1;

/// Maximum ratio of decompressed to compressed size. Snappy makes at most 64 bytes from 3, so a block that claims a higher
/// ratio is damaged.
const MOST_INFLATED: usize = 32;

/// The contents of a block after repair.
pub struct Block<'a> {
    pub contents: Cow<'a, [u8]>,
    /// Index of the stored byte in which one flipped bit was repaired, if any.
    pub flipped: Option<usize>,
}

/// Checks and decompresses a block. `stored` is the block with its trailer. A single flipped bit is repaired; any other
/// damage is an error.
pub fn open(stored: &[u8]) -> Result<Block<'_>, String> {
    let Some((body, crc)) = stored.split_last_chunk::<4>() else { return Err("the block is shorter than 5 bytes".into()) };
    let (stored_crc, computed) = (u32::from_le_bytes(*crc), masked_crc32c(body));
    if stored_crc == computed {
        return Ok(Block { contents: contents(Cow::Borrowed(body))?, flipped: None });
    }
    if (stored_crc ^ computed).is_power_of_two() {
        let byte = body.len() + (stored_crc ^ computed).trailing_zeros() as usize / 8;
        return Ok(Block { contents: contents(Cow::Borrowed(body))?, flipped: Some(byte) });
    }
    let mismatch = format!("block checksum mismatch: stored {stored_crc}, computed {computed}");
    let bit = flipped_bit(unmasked(stored_crc) ^ unmasked(computed), body.len()).ok_or(mismatch)?;
    let mut mended = body.to_vec();
    mended[bit / 8] ^= 1 << (bit % 8);
    Ok(Block { contents: contents(Cow::Owned(mended))?, flipped: Some(bit / 8) })
}

/// Decompresses the contents of a block.
fn contents(body: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, String> {
    let (&kind, packed) = body.split_last().ok_or("the block is shorter than 5 bytes")?;
    let size = packed.len();
    match kind {
        PLAIN => Ok(match body {
            Cow::Borrowed(body) => Cow::Borrowed(&body[..size]),
            Cow::Owned(mut body) => {
                body.truncate(size);
                Cow::Owned(body)
            }
        }),
        SNAPPY => {
            let damaged = |error: snap::Error| format!("the Snappy block is damaged: {error}");
            let claimed = snap::raw::decompress_len(packed).map_err(damaged)?;
            if claimed > size.saturating_mul(MOST_INFLATED) {
                return Err(format!("a Snappy block of {size} bytes cannot hold {claimed} bytes"));
            }
            Ok(Cow::Owned(snap::raw::Decoder::new().decompress_vec(packed).map_err(damaged)?))
        }
        other => Err(format!("a block has the unknown compression method {other}, not 0 (none) or 1 (Snappy)")),
    }
}

/// Finds the single flipped bit in `length` bytes that changes the checksum by `difference`. Returns its index, or `None` if no
/// single bit does.
fn flipped_bit(difference: u32, length: usize) -> Option<usize> {
    // Flipping the last bit of the data changes the remainder by the polynomial. Each earlier bit changes it by the previous
    // difference times x.
    let mut syndrome = POLYNOMIAL;
    for after in 0..length * 8 {
        if syndrome == difference {
            return Some(length * 8 - 1 - after);
        }
        syndrome = (syndrome >> 1) ^ (POLYNOMIAL * (syndrome & 1));
    }
    None
}

/// A key, its value, and the range of bytes in the block that stores both.
pub struct Entry<'a> {
    pub key: Vec<u8>,
    pub value: &'a [u8],
    pub place: Range<usize>,
}

/// Iterator over the keys and values of a block, in order. It ends after an error.
pub struct Entries<'a> {
    contents: &'a [u8],
    /// Offset of the block's list of restarts, which follows the entries.
    end: usize,
    at: usize,
    key: Vec<u8>,
}

impl<'a> Entries<'a> {
    /// Starts at the first key. Fails if the block has no list of restarts.
    pub fn new(contents: &'a [u8]) -> Result<Entries<'a>, String> {
        let restarts = contents.last_chunk().map_or(0, |&count| u32::from_le_bytes(count) as usize);
        let end = restarts.checked_add(1).and_then(|words| contents.len().checked_sub(words.checked_mul(4)?));
        let end = end
            .filter(|_| restarts > 0)
            .ok_or_else(|| format!("a block of {} bytes is too short for its {restarts} restarts", contents.len()))?;
        Ok(Entries { contents, end, at: 0, key: Vec::new() })
    }

    fn record(&mut self) -> Option<Entry<'a>> {
        let start = self.at;
        let mut rest = &self.contents[start..self.end];
        let [shared, own, value] = [varint(&mut rest)?, varint(&mut rest)?, varint(&mut rest)?];
        let (own, value) = (usize::try_from(own).ok()?, usize::try_from(value).ok()?);
        if shared > self.key.len() as u64 {
            return None;
        }
        let (own, rest) = rest.split_at_checked(own)?;
        let (value, rest) = rest.split_at_checked(value)?;
        self.key.truncate(shared as usize);
        self.key.extend(own);
        self.at = self.end - rest.len();
        Some(Entry { key: self.key.clone(), value, place: start..self.at })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let start = self.at;
        let record = self.record().ok_or_else(|| format!("there is no valid key with a value at byte {start} of the block"));
        if record.is_err() {
            self.at = self.end;
        }
        Some(record)
    }
}

/// Reads the number at the start of `bytes`, and moves `bytes` past it. Returns `None` if there is no valid number. Each byte
/// holds 7 bits of the number, lowest first.
pub fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

/// Appends a number in the format that [`varint`] reads.
pub fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(contents: &[u8], kind: u8) -> Vec<u8> {
        let mut bytes = [contents, &[kind]].concat();
        bytes.extend(masked_crc32c(&bytes).to_le_bytes());
        bytes
    }

    #[test]
    fn any_flipped_bit_is_mended_and_named() {
        let whole = stored(&[7; 300], PLAIN);
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let block = open(&damaged).unwrap();
            assert_eq!((&*block.contents, block.flipped), (&[7; 300][..], Some(bit / 8)));
        }
        let mut damaged = whole;
        damaged[3..7].fill(0x55);
        assert!(open(&damaged).is_err_and(|text| text.contains("checksum mismatch")));
    }

    #[test]
    fn snappy_blocks_are_read_within_limits() {
        let packed = snap::raw::Encoder::new().compress_vec(&[3; 1000]).unwrap();
        assert_eq!(&*open(&stored(&packed, SNAPPY)).unwrap().contents, [3; 1000]);
        let mut bomb = Vec::new();
        put_varint(&mut bomb, 1 << 31);
        assert!(open(&stored(&bomb, SNAPPY)).is_err_and(|text| text.contains("cannot hold")));
        assert!(open(&stored(&packed, 9)).is_err_and(|text| text.contains("method 9")));
    }
}
