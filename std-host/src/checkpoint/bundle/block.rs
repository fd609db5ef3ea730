//! A block of a sorted string table: its checksum, its compression, the keys and values in it.

use super::crc::{POLYNOMIAL, unmasked};
use crate::formats::tfrecord::masked_crc32c;
use std::borrow::Cow;
use std::ops::Range;

/// What follows a block: its compression, and the checksum of both.
pub const TRAILER: usize = 5;
const PLAIN: u8 = 0;
const SNAPPY: u8 = 1;

/// Snappy makes at most 64 bytes of 3: a block that claims more than this many times its size is wrong.
const MOST_INFLATED: usize = 32;

/// A block as it should be, and what had to be mended for that.
pub struct Block<'a> {
    pub contents: Cow<'a, [u8]>,
    /// Which byte of the stored block had one bit flipped.
    pub flipped: Option<usize>,
}

/// Checks a block, which `stored` has with its trailer. One flipped bit is mended; the error says what else is wrong.
pub fn open(stored: &[u8]) -> Result<Block<'_>, String> {
    let Some((body, crc)) = stored.split_last_chunk::<4>() else { return Err("a block has at least 5 bytes".into()) };
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

/// A block's bytes without its compression.
fn contents(body: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, String> {
    let (&kind, packed) = body.split_last().ok_or("a block has at least 5 bytes")?;
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
        other => Err(format!("a block is compressed by method {other}, which is not known: 0 is none, 1 is Snappy")),
    }
}

/// Which bit of `length` bytes was flipped, if the checksum is off by `difference` because of a single one.
fn flipped_bit(difference: u32, length: usize) -> Option<usize> {
    // The last bit that goes into the division changes the remainder by the polynomial, each one before it by that times x.
    let mut syndrome = POLYNOMIAL;
    for after in 0..length * 8 {
        if syndrome == difference {
            return Some(length * 8 - 1 - after);
        }
        syndrome = (syndrome >> 1) ^ (POLYNOMIAL * (syndrome & 1));
    }
    None
}

/// A key and a value, and which bytes of the block they are.
pub struct Entry<'a> {
    pub key: Vec<u8>,
    pub value: &'a [u8],
    pub place: Range<usize>,
}

/// The keys and values of a block, in order; an error ends them.
pub struct Entries<'a> {
    contents: &'a [u8],
    /// Where the restarts begin.
    end: usize,
    at: usize,
    key: Vec<u8>,
}

impl<'a> Entries<'a> {
    /// Fails where the block has no list of restarts.
    pub fn new(contents: &'a [u8]) -> Result<Entries<'a>, String> {
        let restarts = contents.last_chunk().map_or(0, |&count| u32::from_le_bytes(count) as usize);
        let end = restarts.checked_add(1).and_then(|words| contents.len().checked_sub(words.checked_mul(4)?));
        let end = end.filter(|_| restarts > 0).ok_or_else(|| format!("a block of {} bytes has no {restarts} restarts", contents.len()))?;
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
        let record = self.record().ok_or_else(|| format!("what is at byte {start} of the block is no key with a value"));
        if record.is_err() {
            self.at = self.end;
        }
        Some(record)
    }
}

/// The number that `bytes` begin with, 7 bits a byte, lowest first. `bytes` go on after it.
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

/// Appends a number as [`varint`] reads it.
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
