//! The checksums of checkpoints: CRC-32C, masked.

use crc_fast::{CrcAlgorithm, Digest};

/// The polynomial of CRC-32C, lowest coefficient in the highest bit.
pub const POLYNOMIAL: u32 = 0x82f6_3b78;
const MASK: u32 = 0xa282_ead8;

/// The checksum of bytes that come piece by piece.
pub struct Crc(Digest);

impl Crc {
    pub fn new() -> Crc {
        Crc(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Goes on with the bytes that `other` is of.
    pub fn append(&mut self, other: &Crc) {
        self.0.combine(&other.0);
    }

    /// As it is stored.
    pub fn masked(&self) -> u32 {
        (self.0.finalize() as u32).rotate_right(15).wrapping_add(MASK)
    }
}

/// The checksum that is stored as `masked`.
pub fn unmasked(masked: u32) -> u32 {
    masked.wrapping_sub(MASK).rotate_left(15)
}
