//! The channels of a result: where their sums start, and how a sum becomes an element.

use super::super::scratch;
use super::LINE;
use crate::simd::integers::{Integers, Scale};
use gradlet_core::ops::Multiplier;

/// Zero point, smallest and largest element of a result.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) zero_point: i32,
    pub(super) least: i32,
    pub(super) greatest: i32,
}

/// Channels of a result, with zeros up to a multiple of [`LINE`] channels.
pub(super) struct Channels<'a> {
    pub(super) starts: &'a mut [i32],
    values: &'a [i32],
    exponents: &'a [i32],
    range: Range,
    /// True if the multipliers shift to the right by 1 to 23 bits, and no number of [`Lanes::usual`] is too large for i32.
    pub(super) are_usual: bool,
}

/// Returns the multiplier of a channel. One multiplier can be that of all channels, and one that is not valid counts as 0.
#[inline]
pub(super) fn multiplier(multipliers: &[i32], channel: usize) -> Multiplier {
    let at = if multipliers.len() == 2 { 0 } else { 2 * channel };
    match multipliers.get(at..at + 2) {
        Some(&[value, exponent]) if value >= 0 && (-31..=30).contains(&exponent) => Multiplier { value, exponent },
        _ => Multiplier::default(),
    }
}

/// Calls `work` with the channels for these operands: the bias, at which the sums of `products` products start, and the multipliers.
pub(super) fn with_channels([bias, multipliers]: [&[i32]; 2], products: usize, range: Range, work: impl FnOnce(&mut Channels<'_>)) {
    let padded = bias.len().next_multiple_of(LINE);
    scratch::with(3 * padded, |numbers: &mut [i32]| {
        numbers.fill(0);
        let (starts, rest) = numbers.split_at_mut(padded);
        let (values, exponents) = rest.split_at_mut(padded);
        starts[..bias.len()].copy_from_slice(bias);
        let of = |channel| match multiplier(multipliers, channel) {
            Multiplier { value: 0, .. } => Multiplier { value: 0, exponent: LEAST },
            usual => usual,
        };
        let one = of(0);
        values[..bias.len()].fill(one.value);
        exponents.fill(one.exponent);
        if multipliers.len() > 2 {
            for channel in 0..bias.len() {
                let Multiplier { value, exponent } = of(channel);
                (values[channel], exponents[channel]) = (value, exponent);
            }
        }
        let largest = bias.iter().fold(0, |largest, bias| bias.unsigned_abs().max(largest));
        let (least, greatest) = exponents.iter().fold((0, LEAST), |(least, greatest), of| (least.min(*of), greatest.max(*of)));
        let are_usual = products as u64 * PRODUCT + u64::from(largest) < 1 << 30 && least >= LEAST && greatest < 0;
        work(&mut Channels { starts, values, exponents, range, are_usual });
    });
}

/// Least exponent of a usual channel.
const LEAST: i32 = -23;
/// Size of the largest product of an element without its zero point and a weight.
const PRODUCT: u64 = 255 * 128;

/// A vector of channels.
#[derive(Clone, Copy)]
pub(super) struct Lanes<V> {
    pub(super) start: V,
    scale: Scale<V>,
    /// The zero point and a half, both shifted to the left by as many bits as a product is shifted to the right.
    offset: V,
    zero_point: V,
    /// Smallest and largest element, unless these are those of i8.
    range: Option<[V; 2]>,
}

impl Channels<'_> {
    /// Returns the vector of channels from `first` on.
    #[inline(always)]
    pub(super) fn lanes<S: Integers>(&self, simd: S, first: usize) -> Lanes<S::Vector> {
        let Range { zero_point, least, greatest } = self.range;
        let (scale, zero_point) =
            (Scale::new(simd, simd.load(&self.values[first..]), simd.load(&self.exponents[first..])), simd.splat(zero_point));
        let half = simd.left(simd.splat(1), simd.sub(scale.right, simd.splat(1)));
        let offset = simd.add(simd.left(zero_point, scale.right), half);
        let range = (least > -128 || greatest < 127).then(|| [simd.splat(least), simd.splat(greatest)]);
        Lanes { start: simd.load(&self.starts[first..]), scale, offset, zero_point, range }
    }
}

impl<V: Copy> Lanes<V> {
    /// Writes the elements for sums to `to`: all of them, or as many as `to` has room for. `USUAL` is true if the channels
    /// [are usual](Channels::are_usual).
    #[inline(always)]
    pub(super) fn finish<S: Integers<Vector = V>, const USUAL: bool>(&self, simd: S, sums: V, to: &mut [i8]) {
        let number = if USUAL { self.usual(simd, sums) } else { simd.add(simd.scale(sums, &self.scale), self.zero_point) };
        self.write(simd, number, to);
    }

    /// Returns the numbers for the sums of usual channels. They are rounded as by [`Integers::scale`].
    #[inline(always)]
    fn usual<S: Integers<Vector = V>>(&self, simd: S, sums: V) -> V {
        let high = simd.mul_high::<false>(sums, self.scale.value);
        let ties = simd.right_signed(high, simd.splat(31));
        simd.right_signed(simd.add(simd.add(high, ties), self.offset), self.scale.right)
    }

    /// Returns the numbers for the sums of usual channels. They are rounded once, and ties go away from zero.
    #[inline(always)]
    pub(super) fn usual_once<S: Integers<Vector = V>>(&self, simd: S, sums: V) -> V {
        let high = simd.mul_high::<true>(sums, self.scale.value);
        simd.right_signed(simd.add(high, self.offset), self.scale.right)
    }

    /// Writes the elements for numbers, to which the zero point was added.
    #[inline(always)]
    pub(super) fn write<S: Integers<Vector = V>>(&self, simd: S, number: V, to: &mut [i8]) {
        let element = match self.range {
            Some([least, greatest]) => simd.least(simd.greatest(number, least), greatest),
            None => number,
        };
        if to.len() >= S::LANES { simd.narrow(to, element) } else { simd.narrow_part(to, element) }
    }
}
