//! Pairs of i8 elements in one word, and the constants of a packed op.
//!
//! The product of a 64-bit sum's pair and a weight adds two products at once: `SMLAL` on a Cortex-M. The lanes are 23 bits apart. They do
//! not mix if the sum of the lower lane keeps within 22 bits and a sign, which the compiler checks before it packs a filter.

use bytemuck::{Pod, Zeroable};

/// The first value of a sum. It makes the lower lane positive, so that it borrows nothing from the upper one.
pub(in crate::ops) const START: i64 = 1 << 22;
/// Pairs of pixels in a tile.
pub(in crate::ops) const PAIRS: usize = 3;
/// Pixels in a tile.
pub(in crate::ops) const PIXELS: usize = 2 * PAIRS;
/// The elements of a tile's pixels that meet one weight.
pub(in crate::ops) type Column = [i32; PAIRS];

/// Returns two elements in a word.
#[inline(always)]
pub(in crate::ops) fn pair(low: i8, high: i8) -> i32 {
    i32::from(low) + (i32::from(high) << 23)
}

/// Adds the products of a pair and a weight.
#[inline(always)]
pub(in crate::ops) fn mac(sums: i64, pair: i32, weight: i8) -> i64 {
    sums.wrapping_add(i64::from(pair) * i64::from(weight))
}

/// Returns the two sums, which began with [`START`].
#[inline(always)]
pub(in crate::ops) fn lanes(sums: i64) -> [i32; 2] {
    [(sums as i32 & 0x7f_ffff) - START as i32, (sums >> 23) as i32]
}

/// Constants of a channel of the result.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(in crate::ops) struct Channel {
    /// Twice the bias, less twice the zero point of x times the sum of the weights.
    pub(in crate::ops) bias: i32,
    /// Mantissa of the multiplier, or 0 if the result is always the same.
    pub(in crate::ops) multiplier: i32,
    /// `2^shift` times the zero point of the result, plus a half of `2^shift`.
    pub(in crate::ops) offset: i32,
    /// Negative exponent of the multiplier: 1 to 23.
    pub(in crate::ops) shift: u32,
}

impl Channel {
    /// Number of words.
    pub(in crate::ops) const WORDS: usize = size_of::<Channel>() / size_of::<i32>();

    /// Returns the results of two pixels, whose sums began with [`START`].
    #[inline(always)]
    pub(in crate::ops) fn results(&self, sums: i64) -> [i8; 2] {
        let [low, high] = lanes(sums);
        [self.twice(low), self.twice(high)]
    }

    /// Returns the results of three pairs of pixels.
    #[inline(always)]
    pub(in crate::ops) fn all(&self, [a, b, c]: [i64; PAIRS]) -> [[i8; 2]; PAIRS] {
        let channel = *self;
        [channel.results(a), channel.results(b), channel.results(c)]
    }

    /// Returns the result of a sum. The product with the multiplier is rounded twice, as
    /// [`Multiplier::twice`](super::fixed_point::Multiplier::twice) does.
    #[inline(always)]
    pub(in crate::ops) fn twice(&self, sum: i32) -> i8 {
        let high = ((self.product(sum).wrapping_add(0x8000_0000)) >> 32) as i32;
        self.shifted(high.wrapping_add(high >> 31))
    }

    /// Returns the result of a sum. The product with the multiplier is rounded once, as
    /// [`Multiplier::once`](super::fixed_point::Multiplier::once) does.
    #[inline(always)]
    pub(in crate::ops) fn once(&self, sum: i32) -> i8 {
        let product = self.product(sum);
        self.shifted((product.wrapping_add(product >> 63) >> 32) as i32)
    }

    /// Returns twice the product of a sum with its bias and the multiplier.
    #[inline(always)]
    fn product(&self, sum: i32) -> i64 {
        i64::from(self.bias.wrapping_add(sum.wrapping_shl(1))) * i64::from(self.multiplier)
    }

    #[inline(always)]
    fn shifted(&self, high: i32) -> i8 {
        high.wrapping_add(self.offset).wrapping_shr(self.shift).clamp(-128, 127) as i8
    }
}
