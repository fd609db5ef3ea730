//! Elements without a fixed size, in the format of a data file.
//!
//! | stored bytes | bytes that enter the entry's checksum |
//! |---|---|
//! | length of each string, 7 bits per byte | each length as 4 bytes, or as 8 if it needs more |
//! | masked checksum of the lengths, 4 bytes | the same |
//! | the strings | the same |

use super::block::{put_varint, varint};
use super::crc::Crc;
use crate::values::strings::Strings;
use bytes::Bytes;

/// Encodes strings for a data file. Returns the bytes and their checksum.
pub fn strings_to_bytes(strings: &Strings) -> (Vec<u8>, u32) {
    let (mut stored, mut crc) = (Vec::new(), Crc::new());
    for string in strings.values() {
        put_varint(&mut stored, string.len() as u64);
        add_length(&mut crc, string.len() as u64);
    }
    let lengths = crc.masked().to_le_bytes();
    stored.extend(lengths);
    crc.update(&lengths);
    for string in strings.values() {
        stored.extend(string);
        crc.update(string);
    }
    (stored, crc.masked())
}

/// Decodes `count` strings from a data file. Returns them, and the checksum that their index entry should have.
pub fn strings_from_bytes(stored: &Bytes, count: usize) -> Result<(Vec<Bytes>, u32), String> {
    let mut rest = &stored[..];
    let (mut lengths, mut crc) = (Vec::new(), Crc::new());
    for _ in 0..count {
        let length = varint(&mut rest).ok_or("the lengths of the strings are damaged")?;
        add_length(&mut crc, length);
        lengths.push(length);
    }
    let (sum, rest) = rest.split_first_chunk::<4>().ok_or("the lengths of the strings are damaged")?;
    let (wanted, found) = (u32::from_le_bytes(*sum), crc.masked());
    if wanted != found {
        return Err(format!("the checksum of the strings' lengths does not match: stored {wanted}, computed {found}"));
    }
    crc.update(sum);
    crc.update(rest);
    let mut at = stored.len() - rest.len();
    let mut strings = Vec::with_capacity(lengths.len());
    for length in lengths {
        let end = usize::try_from(length).ok().and_then(|length| at.checked_add(length)).filter(|end| *end <= stored.len());
        let end = end.ok_or("the strings are longer than the size in their index entry")?;
        strings.push(stored.slice(at..end));
        at = end;
    }
    match at == stored.len() {
        true => Ok((strings, crc.masked())),
        false => Err("the strings are shorter than the size in their index entry".into()),
    }
}

/// Computes the checksum that the index entry of a tensor of variants should have. For each variant, the checksum covers its
/// length as 8 bytes, its bytes, and its stored checksum. Fails if a stored checksum does not match, or if `stored` does not
/// consist of `count` variants.
pub fn variants_checksum(stored: &[u8], count: usize) -> Result<u32, String> {
    let (mut rest, mut crc) = (stored, Crc::new());
    for _ in 0..count {
        let length = varint(&mut rest).ok_or("the length of a variant is damaged")?;
        crc.update(&length.to_le_bytes());
        let variant = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let (variant, behind) = variant.ok_or("the variants are longer than the size in their index entry")?;
        crc.update(variant);
        let (sum, behind) = behind.split_first_chunk::<4>().ok_or("the variants are longer than the size in their index entry")?;
        if *sum != crc.masked().to_le_bytes() {
            return Err("the checksum of a variant does not match".into());
        }
        crc.update(sum);
        rest = behind;
    }
    match rest.is_empty() {
        true => Ok(crc.masked()),
        false => Err("the variants are shorter than the size in their index entry".into()),
    }
}

fn add_length(crc: &mut Crc, length: u64) {
    match u32::try_from(length) {
        Ok(length) => crc.update(&length.to_le_bytes()),
        Err(_) => crc.update(&length.to_le_bytes()),
    }
}
