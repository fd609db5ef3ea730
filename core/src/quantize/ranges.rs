//! Ranges of real numbers, and the scales and zero points that cover them.

use crate::base::error::{Error, Result};
use crate::base::quantization::Quantization;
use crate::tensor::Tensor;
use alloc::format;
use alloc::vec::Vec;

/// The smallest and the greatest number of a tensor so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    least: f32,
    greatest: f32,
}

impl Range {
    /// The range of no number.
    pub(super) const EMPTY: Range = Range { least: f32::INFINITY, greatest: f32::NEG_INFINITY };

    /// Returns the range that covers both ranges.
    pub(super) fn or(self, other: Range) -> Range {
        let least = if other.least < self.least { other.least } else { self.least };
        let greatest = if other.greatest > self.greatest { other.greatest } else { self.greatest };
        Range { least, greatest }
    }

    /// Returns the range of the elements of an f32 tensor. Fails if one of them is not finite.
    pub(super) fn of(tensor: &Tensor) -> Result<Range> {
        tensor.to_vec::<f32>()?.into_iter().try_fold(Range::EMPTY, |range, x| match x.is_finite() {
            true => Ok(range.or(Range { least: x, greatest: x })),
            false => Err(Error::message(format!("an element is {x}, which has no int8"))),
        })
    }

    /// Returns the range of the scores of a softmax along the last axis. Scores that a mask has lowered by more than 1000, also to −∞,
    /// count as 16 below the greatest of their row, where int8 already has the probability 0. Rows that are masked as a whole do not
    /// count. Fails for NaN and +∞.
    pub(super) fn of_scores(tensor: &Tensor) -> Result<Range> {
        let (scores, length) = (tensor.to_vec::<f32>()?, tensor.dims().last().map_or(1, |&dim| dim as usize).max(1));
        if let Some(wrong) = scores.iter().find(|score| score.is_nan() || **score == f32::INFINITY) {
            return Err(Error::message(format!("an element is {wrong}, which has no int8")));
        }
        let mut range = Range::EMPTY;
        for row in scores.chunks(length) {
            let greatest = row.iter().fold(f32::NEG_INFINITY, |greatest, &score| if score > greatest { score } else { greatest });
            if greatest < MASKED {
                continue;
            }
            for &score in row {
                let counted = if score < greatest + MASKED { greatest - 16.0 } else { score };
                range = range.or(Range { least: counted, greatest: counted });
            }
        }
        Ok(range)
    }

    /// Returns the part of this range that an operand of a sum needs if the sum has the range `sum` and the other operand the range
    /// `other`: beyond it, the sum has left its own range.
    pub(super) fn within(self, sum: Range, other: Range) -> Range {
        let (low, high) = (sum.least - other.greatest, sum.greatest - other.least);
        let least = if self.least < low { low } else { self.least };
        let greatest = if self.greatest > high { high } else { self.greatest };
        Range { least, greatest }
    }

    /// Returns the range of the negated numbers.
    pub(super) fn negated(self) -> Range {
        Range { least: -self.greatest, greatest: -self.least }
    }

    /// True if there is no number in the range.
    pub(super) fn is_empty(self) -> bool {
        self.least > self.greatest
    }

    /// Returns the scale and zero point of int8 elements that cover this range and 0, as TensorFlow Lite's converter chooses them.
    pub(super) fn quantization(self) -> Quantization {
        let Range { least, greatest } = self.or(Range { least: 0.0, greatest: 0.0 });
        let (least, greatest) = (f64::from(least), f64::from(greatest));
        let scale = (greatest - least) / 255.0;
        if scale < f64::from(f32::MIN_POSITIVE) {
            return Quantization { scale: 1.0, zero_point: 0 };
        }
        // Both ends give the zero point. That of the end nearer to 0 has the smaller rounding error.
        let zero_point = if -least < greatest { -128.0 - least / scale } else { 127.0 - greatest / scale };
        Quantization { scale: scale as f32, zero_point: libm::round(zero_point) as i32 }
    }
}

/// Scores that are less than this are masked.
const MASKED: f32 = -1000.0;

/// The weights of an op with int8 elements, and its bias.
pub(super) struct Weights {
    /// The weights. -128 does not occur.
    pub(super) elements: Vec<i8>,
    /// Scale of each channel. The zero points are 0.
    pub(super) scales: Vec<f32>,
    /// Bias of each channel, in the scale of input times weight.
    pub(super) bias: Vec<i32>,
}

impl Weights {
    /// Quantizes weights, each of which belongs to the channel that `channel` returns for its position. There is one element of `bias` for
    /// each channel. `input` is the scale of the input.
    pub(super) fn new(weights: &[f32], channel: impl Fn(usize) -> usize, bias: &[f32], input: f32) -> Weights {
        /// Greatest bias: a quarter of the range of i32 is left to the products.
        const LARGEST_BIAS: f64 = (1 << 30) as f64;
        let mut scales: Vec<f32> = bias.iter().map(|&bias| (f64::from(bias).abs() / (LARGEST_BIAS * f64::from(input))) as f32).collect();
        for (at, weight) in weights.iter().enumerate() {
            let (scale, own) = (&mut scales[channel(at)], (f64::from(weight.abs()) / 127.0) as f32);
            *scale = if own > *scale { own } else { *scale };
        }
        scales.iter_mut().filter(|scale| **scale < f32::MIN_POSITIVE).for_each(|scale| *scale = 1.0);
        let element = |(at, &weight): (usize, &f32)| {
            Quantization { scale: scales[channel(at)], zero_point: 0 }.nearest(weight).clamp(-127, 127) as i8
        };
        let elements = weights.iter().enumerate().map(element).collect();
        let rounded = |(&bias, &scale): (&f32, &f32)| libm::round(f64::from(bias) / (f64::from(input) * f64::from(scale))) as i32;
        let bias = bias.iter().zip(&scales).map(rounded).collect();
        Weights { elements, scales, bias }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn ranges_are_covered_with_zero_exact() {
        for (least, greatest) in [(-1.0, 1.0), (0.0, 6.0), (2.0, 3.0), (-5.0, -4.0), (-1e-30, 1e30), (-0.3, 12.7), (-1e38, 2e38)] {
            let chosen = Range { least, greatest }.quantization();
            assert!((-128..=127).contains(&chosen.zero_point), "{chosen}");
            for real in [least, greatest] {
                let integer = chosen.nearest(real).clamp(-128, 127);
                assert!((f64::from(chosen.real(integer)) - f64::from(real)).abs() <= 0.51 * f64::from(chosen.scale), "{real} in {chosen}");
            }
        }
        let none = Quantization { scale: 1.0, zero_point: 0 };
        assert_eq!([Range::EMPTY.quantization(), Range { least: 0.0, greatest: 1e-44 }.quantization()], [none; 2]);
        // TensorFlow Lite's converter gives these to the range of a relu6.
        assert_eq!(Range { least: 0.0, greatest: 6.0 }.quantization(), Quantization { scale: 6.0 / 255.0, zero_point: -128 });
    }

    #[test]
    fn masked_scores_do_not_widen_a_range() {
        let of = |scores: &[f32]| {
            let rows = (scores.len() / 3) as u32;
            Range::of_scores(&Tensor::new(&crate::ops::portable_cpu(), scores, &[rows, 3]).unwrap())
        };
        assert_eq!(of(&[1.0, -30.0, 2.0]), Ok(Range { least: -30.0, greatest: 2.0 }));
        assert_eq!(of(&[1.0, -2e38, 2.0, -1e9, 5.0, f32::NEG_INFINITY]), Ok(Range { least: -14.0, greatest: 5.0 }));
        assert_eq!(of(&[-2e38; 3]), Ok(Range::EMPTY));
        assert!(of(&[1.0, f32::NAN, 2.0]).is_err() && of(&[1.0, f32::INFINITY, 2.0]).is_err());
        let (sum, other) = (Range { least: -14.0, greatest: 5.0 }, Range { least: -4.0, greatest: 6.0 });
        assert_eq!(Range { least: -1e9, greatest: 0.0 }.within(sum, other), Range { least: -20.0, greatest: 0.0 });
    }

    #[test]
    fn weights_of_each_channel_fill_its_range() {
        let Weights { elements, scales, bias } = Weights::new(&[1.0, -8.0, 0.5, 4.0, 0.0, 0.0], |at| at % 2, &[0.25, -1e9], 0.5);
        assert_eq!(scales[0], 1.0 / 127.0);
        assert_eq!([elements[0], elements[2], elements[4]], [127, 64, 0]);
        assert_eq!(bias[0], 64);
        // A bias that would leave the range of i32 widens the scale.
        assert!(scales[1] > 8.0 / 127.0);
        assert!((f64::from(bias[1]) + f64::from(1 << 30)).abs() < 100.0, "{bias:?}");
        assert_eq!(Weights::new(&[0.0], |_| 0, &[0.0], 1.0).scales, vec![1.0]);
    }
}
