//! Descriptors of matrices in shared memory.
//!
//! A matrix consists of rows of 16 bytes. Without swizzle, 8 of them that follow each other are a core matrix. With a swizzle, 8 rows of
//! 32, 64 or 128 bytes follow each other, and the bits 4 to 6 of an address are changed by those from bit 7 on.

use crate::machine::spaces::ROW;

/// A matrix in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    start: u64,
    leading: u64,
    stride: u64,
    /// Bytes of a row of the swizzled pattern; 16 without swizzle.
    width: u64,
}

/// Bits of a descriptor that have a meaning.
const MEANINGFUL: u64 = 0x3fff | 0x3fff << 16 | 0x3fff << 32 | 7 << 49 | 3 << 62;

impl Matrix {
    /// Reads a descriptor. `transposed`: whether the depth is not what lies side by side.
    pub fn new(word: u64, transposed: bool) -> Result<Matrix, String> {
        let field = |shift: u32| (word >> shift & 0x3fff) << 4;
        let width = [16, 128, 64, 32][(word >> 62) as usize];
        let matrix = Matrix { start: field(0), leading: field(16), stride: field(32), width };
        let wrong = if word & !MEANINGFUL != 0 {
            "it has bits without a meaning"
        } else if word >> 49 & 7 != 0 || matrix.start >> 7 & (width / 16 - 1) != 0 {
            "it begins within the pattern of its swizzle, which the emulator does not support"
        } else if transposed && !matrix.start.is_multiple_of(width) {
            "it begins within a row of its swizzle"
        } else {
            return Ok(matrix);
        };
        Err(format!("the descriptor {word:#018x}: {wrong}"))
    }

    /// The address of 16 bytes of the depth, number `unit`, of a row (or of a column of the right factor).
    pub fn along_depth(&self, row: u64, unit: u64) -> u64 {
        let Matrix { start, leading, stride, width } = *self;
        let group = start + row / 8 * stride;
        if width == 16 { group + row % 8 * 16 + unit * leading } else { self.swizzled(group + row % 8 * width + unit * 16) }
    }

    /// The address of 16 bytes at a depth: those of 8 rows (or columns of the right factor), number `unit`.
    pub fn along_rows(&self, unit: u64, depth: u64) -> u64 {
        let Matrix { start, leading, stride, width } = *self;
        if width == 16 {
            return start + unit * stride + depth / 8 * leading + depth % 8 * 16;
        }
        let units = width / ROW as u64;
        self.swizzled(start + unit / units * leading + unit % units * 16 + depth / 8 * stride + depth % 8 * width)
    }

    fn swizzled(&self, address: u64) -> u64 {
        address ^ (address >> 7 & (self.width / 16 - 1)) << 4
    }

    /// Whether the depth of a product fits into a row of the swizzled pattern.
    pub fn has_depth(&self, units: u64) -> bool {
        self.width == 16 || self.start % self.width + units * 16 <= self.width
    }
}
