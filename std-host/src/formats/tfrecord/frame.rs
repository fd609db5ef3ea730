//! Framing of a record: the length before the data, and the checksums.

use super::error::Fault;

/// Size of the length and its checksum, in bytes.
pub const HEADER: usize = 12;
/// Size of the checksum of the data, in bytes.
pub const FOOTER: usize = 4;

/// Computes the checksum of TFRecord files: CRC-32C (RFC 3720, B.4), rotated right by 15 bits, plus `0xa282ead8`.
///
/// The rotation and the addition keep the checksum effective for data that itself contains checksums.
///
/// ```
/// assert_eq!(gradlet::io::tfrecord::masked_crc32c(b"123456789"), 3_347_755_237);
/// ```
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns a stored checksum: the first 4 bytes of `bytes`.
pub(super) fn stored_crc(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |&bytes| u32::from_le_bytes(bytes))
}

/// Returns the header of a record with `length` bytes of data.
pub(super) fn header(length: usize) -> [u8; HEADER] {
    let length = (length as u64).to_le_bytes();
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&length);
    header[8..].copy_from_slice(&masked_crc32c(&length).to_le_bytes());
    header
}

/// Returns the length of the data, from the header of the record at `offset`. Fails if the checksum of the length is wrong.
pub(super) fn length(header: &[u8; HEADER], offset: u64) -> Result<u64, Fault> {
    let (length, stored) = header.split_at(8);
    if masked_crc32c(length) != stored_crc(stored) {
        return Err(Fault::Length { offset, header: *header });
    }
    Ok(length.first_chunk().map_or(0, |&length| u64::from_le_bytes(length)))
}

/// Checks the data of a record against its checksum. `whole` consists of the data and the checksum. `offset` is the position of the data,
/// for the error. Returns the length of the data.
pub(super) fn check(whole: &[u8], offset: u64) -> Result<usize, Fault> {
    let length = whole.len().saturating_sub(FOOTER);
    let (data, stored) = whole.split_at(length);
    let (computed, stored) = (masked_crc32c(data), stored_crc(stored));
    if computed != stored {
        return Err(Fault::Data { offset, length: length as u64, stored, computed });
    }
    Ok(length)
}
