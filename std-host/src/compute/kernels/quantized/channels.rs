//! The channels of a result: where their sums start, and how a sum becomes an element.

use super::super::scratch;
use super::LINE;
use crate::compute::simd::integers::{Integers, Scale};
use gradlet_core::ops::Multiplier;

/// Zero point, smallest and largest element of a result.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) zero_point: i32,
    pub(super) least: i32,
    pub(super) greatest: i32,
}

impl Range {
    /// Returns the element for a number without the zero point.
    pub(super) fn element(self, number: i32) -> i8 {
        number.wrapping_add(self.zero_point).max(self.least).min(self.greatest) as i8
    }
}

/// Channels of a result, with zeros up to a multiple of [`LINE`] channels.
pub(super) struct Channels<'a> {
    pub(super) starts: &'a mut [i32],
    values: &'a [i32],
    exponents: &'a [i32],
    range: Range,
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

/// Calls `work` with the channels for these operands: the bias, at which the sums start, and the multipliers.
pub(super) fn with_channels([bias, multipliers]: [&[i32]; 2], range: Range, work: impl FnOnce(&mut Channels<'_>)) {
    let padded = bias.len().next_multiple_of(LINE);
    scratch::with(3 * padded, |numbers: &mut [i32]| {
        numbers.fill(0);
        let (starts, rest) = numbers.split_at_mut(padded);
        let (values, exponents) = rest.split_at_mut(padded);
        starts[..bias.len()].copy_from_slice(bias);
        for (channel, (value, exponent)) in values.iter_mut().zip(&mut *exponents).take(bias.len()).enumerate() {
            let of = multiplier(multipliers, channel);
            (*value, *exponent) = (of.value, of.exponent);
        }
        work(&mut Channels { starts, values, exponents, range });
    });
}

/// A vector of channels.
#[derive(Clone, Copy)]
pub(super) struct Lanes<V> {
    pub(super) start: V,
    scale: Scale<V>,
    zero_point: V,
    least: V,
    greatest: V,
}

impl Channels<'_> {
    /// Returns the vector of channels from `first` on.
    #[inline(always)]
    pub(super) fn lanes<S: Integers>(&self, simd: S, first: usize) -> Lanes<S::Vector> {
        Lanes {
            start: simd.load(&self.starts[first..]),
            scale: Scale::new(simd, simd.load(&self.values[first..]), simd.load(&self.exponents[first..])),
            zero_point: simd.splat(self.range.zero_point),
            least: simd.splat(self.range.least),
            greatest: simd.splat(self.range.greatest),
        }
    }
}

impl<V: Copy> Lanes<V> {
    /// Writes the elements for sums to `to`: all of them, or as many as `to` has room for.
    #[inline(always)]
    pub(super) fn finish<S: Integers<Vector = V>>(&self, simd: S, sums: V, to: &mut [i8]) {
        let number = simd.add(simd.scale(sums, &self.scale), self.zero_point);
        let element = simd.least(simd.greatest(number, self.least), self.greatest);
        if to.len() >= S::LANES { simd.narrow(to, element) } else { simd.narrow_part(to, element) }
    }
}
