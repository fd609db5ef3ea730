//! The checksums of checkpoints: CRC-32C, masked.

use crc32c::{crc32c_append, crc32c_combine};

/// The polynomial of CRC-32C, lowest coefficient in the highest bit.
pub const POLYNOMIAL: u32 = 0x82f6_3b78;
const MASK: u32 = 0xa282_ead8;

/// The checksum of bytes that come piece by piece.
#[derive(Default)]
pub struct Crc {
    sum: u32,
    length: usize,
}

impl Crc {
    pub fn new() -> Crc {
        Crc::default()
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.sum = crc32c_append(self.sum, bytes);
        self.length += bytes.len();
    }

    /// Goes on with the bytes that `other` is of.
    pub fn append(&mut self, other: &Crc) {
        self.sum = crc32c_combine(self.sum, other.sum, other.length);
        self.length += other.length;
    }

    /// As it is stored.
    pub fn masked(&self) -> u32 {
        self.sum.rotate_right(15).wrapping_add(MASK)
    }
}

/// The checksum that is stored as `masked`.
pub fn unmasked(masked: u32) -> u32 {
    masked.wrapping_sub(MASK).rotate_left(15)
}
