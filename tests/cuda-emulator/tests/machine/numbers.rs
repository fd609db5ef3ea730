//! Numbers of matrices, and matrices of them, for the tests of products.

use crate::support::random;

/// Numbers of the factors of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Half,
    Brain,
    Tf32,
}

impl Number {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        if self == Number::Tf32 { 4 } else { 2 }
    }

    /// The bits of a value that the numbers have exactly.
    pub fn bits(self, value: f32) -> u32 {
        match self {
            Number::Tf32 => value.to_bits(),
            Number::Brain => value.to_bits() >> 16,
            Number::Half if value == 0.0 => value.to_bits() >> 16,
            Number::Half => {
                let bits = value.to_bits();
                let exponent = (bits >> 23 & 0xff) + 15 - 127;
                bits >> 16 & 0x8000 | exponent << 10 | bits >> 13 & 0x3ff
            }
        }
    }
}

/// A matrix of values with few bits, so that every number and every sum of products has them exactly.
pub fn matrix(rows: usize, columns: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut next = random(seed);
    let mut row = || (0..columns).map(|_| (next() % 65) as f32 / 8.0 - 4.0).collect();
    (0..rows).map(|_| row()).collect()
}

/// `c + a · b`, where `b` has its columns as rows.
pub fn product(a: &[Vec<f32>], b: &[Vec<f32>], c: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let sum = |a: &[f32], b: &[f32], c: f32| a.iter().zip(b).fold(c, |sum, (a, b)| sum + a * b);
    a.iter().zip(c).map(|(a, c)| b.iter().zip(c).map(|(b, c)| sum(a, b, *c)).collect()).collect()
}
