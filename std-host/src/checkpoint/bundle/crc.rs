//! The checksums of checkpoints: masked CRC-32C.

use crc32c::{crc32c_append, crc32c_combine};

/// Polynomial of CRC-32C, with the lowest coefficient in the highest bit.
pub const POLYNOMIAL: u32 = 0x82f6_3b78;
const MASK: u32 = 0xa282_ead8;

/// A checksum over bytes that arrive in pieces.
#[derive(Default)]
pub struct Crc {
    sum: u32,
    length: u64,
}

impl Crc {
    pub fn new() -> Crc {
        Crc::default()
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.sum = crc32c_append(self.sum, bytes);
        self.length += bytes.len() as u64;
    }

    /// Continues the checksum with the bytes that `other` covers.
    pub fn append(&mut self, other: &Crc) {
        // The crate counts in usize, which is too small for a large part on a 32-bit host. The checksum of `n` zero bytes after a sum is
        // that sum combined with 0.
        let mut left = other.length;
        while left > u64::from(u32::MAX) {
            self.sum = crc32c_combine(self.sum, 0, 1 << 30);
            left -= 1 << 30;
        }
        self.sum = crc32c_combine(self.sum, other.sum, left as usize);
        self.length += other.length;
    }

    /// Returns the checksum in its stored form, masked.
    pub fn masked(&self) -> u32 {
        self.sum.rotate_right(15).wrapping_add(MASK)
    }
}

/// Returns the checksum whose stored form is `masked`.
pub fn unmasked(masked: u32) -> u32 {
    masked.wrapping_sub(MASK).rotate_left(15)
}
