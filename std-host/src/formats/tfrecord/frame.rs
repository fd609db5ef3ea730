//! What stands around the data of a record.

use super::error::Fault;

/// The length and its checksum.
pub const HEADER: usize = 12;
/// The checksum of the data.
pub const FOOTER: usize = 4;

/// The checksum of TFRecord files: CRC-32C (RFC 3720, B.4), turned by 15 bits, plus `0xa282ead8`.
///
/// So the checksum of bytes that have checksums in them is no special number.
///
/// ```
/// assert_eq!(gradlet::io::tfrecord::masked_crc32c(b"123456789"), 3_347_755_237);
/// ```
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A stored checksum: the first 4 of `bytes`.
pub(super) fn stored_crc(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |&bytes| u32::from_le_bytes(bytes))
}

/// What stands before data of `length` bytes.
pub(super) fn header(length: usize) -> [u8; HEADER] {
    let length = (length as u64).to_le_bytes();
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&length);
    header[8..].copy_from_slice(&masked_crc32c(&length).to_le_bytes());
    header
}

/// The length that the header of the record at `offset` gives, if its checksum is right.
pub(super) fn length(header: &[u8; HEADER], offset: u64) -> Result<u64, Fault> {
    let (length, stored) = header.split_at(8);
    if masked_crc32c(length) != stored_crc(stored) {
        return Err(Fault::Length { offset, header: *header });
    }
    Ok(length.first_chunk().map_or(0, |&length| u64::from_le_bytes(length)))
}

/// Checks data that begins at `offset`, by the checksum that follows it in `whole`. Gives the data's length.
pub(super) fn check(whole: &[u8], offset: u64) -> Result<usize, Fault> {
    let length = whole.len().saturating_sub(FOOTER);
    let (data, stored) = whole.split_at(length);
    let (computed, stored) = (masked_crc32c(data), stored_crc(stored));
    if computed != stored {
        return Err(Fault::Data { offset, length: length as u64, stored, computed });
    }
    Ok(length)
}
