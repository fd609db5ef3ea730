//! Parts of quantised convolutions and dense layers: their operands, their sums, and the conversion of a sum to a result.

use super::fixed_point::Multiplier;
use crate::base::dtype::{DType, Element};
use crate::base::error::{Error, Result};
use crate::base::op::Call;
use crate::base::quantization::limits;
use crate::base::shape::TensorType;
use bytemuck::{Pod, Zeroable};

/// Element of a quantised tensor: i8, u8 or i16.
pub(in crate::ops) trait Quantized: Element {
    /// Smallest value.
    const LEAST: i32;
    /// Largest value.
    const GREATEST: i32;
    /// Returns the element as a number.
    fn number(self) -> i32;
    /// Converts a number between [`Quantized::LEAST`] and [`Quantized::GREATEST`].
    fn of(number: i32) -> Self;
    /// Returns the nearest element.
    #[inline(always)]
    fn saturated(number: i32) -> Self {
        Self::of(number.clamp(Self::LEAST, Self::GREATEST))
    }
}

macro_rules! quantized {
    ($($ty:ty),*) => {$(
        impl Quantized for $ty {
            const LEAST: i32 = <$ty>::MIN as i32;
            const GREATEST: i32 = <$ty>::MAX as i32;
            #[inline(always)]
            fn number(self) -> i32 { self.into() }
            #[inline(always)]
            fn of(number: i32) -> Self { number as $ty }
        }
    )*};
}
quantized!(i8, u8, i16);

/// Checks that `zero_point`, attribute word `index`, is an element of type `dtype`.
pub(in crate::ops) fn check_zero_point(zero_point: i32, dtype: DType, index: usize) -> Result<()> {
    match limits(dtype) {
        Some((least, greatest)) if (least..=greatest).contains(&zero_point) => Ok(()),
        _ => Err(Error::Attribute { index: index as u8 }),
    }
}

/// Attribute words for a result: its zero point, and the range that an activation leaves.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Output {
    /// Integer that stands for 0.
    pub zero_point: i32,
    /// Smallest element.
    pub least: i32,
    /// Largest element, at least `least`.
    pub greatest: i32,
}

impl Output {
    /// Checks the words, which begin at word `index`, for a result of type `dtype`.
    pub(in crate::ops) fn check(&self, dtype: DType, index: usize) -> Result<()> {
        check_zero_point(self.zero_point, dtype, index)?;
        check_zero_point(self.least, dtype, index + 1)?;
        check_zero_point(self.greatest, dtype, index + 2)?;
        if self.least > self.greatest { Err(Error::Attribute { index: index as u8 + 2 }) } else { Ok(()) }
    }

    /// Returns the element for a number without the zero point.
    #[inline(always)]
    pub(in crate::ops) fn element<T: Quantized>(&self, number: i32) -> T {
        T::of(number.wrapping_add(self.zero_point).max(self.least).min(self.greatest))
    }
}

/// Limits the results to the range that an activation leaves.
#[inline(always)]
pub(in crate::ops) fn limit<T: Quantized>(results: &mut [T], [least, greatest]: [i32; 2]) {
    if least > T::LEAST || greatest < T::GREATEST {
        for y in results {
            *y = T::of(y.number().max(least).min(greatest));
        }
    }
}

/// Sum of products: i32, or i64 for activations of 16 bits whose bias is i64.
pub(in crate::ops) trait Sum: Element {
    /// 0.
    const ZERO: Self;
    /// Adds the product of two numbers, each of at most 17 bits. A sum of 32 bits wraps around.
    fn add_product(self, a: i32, b: i32) -> Self;
    /// Adds two sums. They wrap.
    fn plus(self, other: Self) -> Self;
    /// Returns the product with a multiplier, rounded twice, or as often as TensorFlow Lite does for i64.
    fn scaled(self, multiplier: Multiplier) -> i32;
    /// Returns the product with a multiplier, rounded once.
    fn scaled_once(self, multiplier: Multiplier) -> i32;
}

impl Sum for i32 {
    const ZERO: i32 = 0;
    #[inline(always)]
    fn add_product(self, a: i32, b: i32) -> i32 {
        self.wrapping_add(a.wrapping_mul(b))
    }
    #[inline(always)]
    fn plus(self, other: i32) -> i32 {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn scaled(self, multiplier: Multiplier) -> i32 {
        multiplier.twice(self)
    }
    #[inline(always)]
    fn scaled_once(self, multiplier: Multiplier) -> i32 {
        multiplier.once(self)
    }
}

impl Sum for i64 {
    const ZERO: i64 = 0;
    #[inline(always)]
    fn add_product(self, a: i32, b: i32) -> i64 {
        self.wrapping_add(i64::from(a) * i64::from(b))
    }
    #[inline(always)]
    fn plus(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn scaled(self, multiplier: Multiplier) -> i32 {
        multiplier.wide(self)
    }
    #[inline(always)]
    fn scaled_once(self, multiplier: Multiplier) -> i32 {
        multiplier.once_wide(self)
    }
}

/// Adds the products of the elements of `x`, less its zero point, and `filter` to `sum`.
#[inline(always)]
pub(in crate::ops) fn dot<T: Quantized, S: Sum>(sum: S, x: &[T], filter: &[i8], zero_point: i32) -> S {
    x.iter().zip(filter).fold(sum, |sum, (x, &filter)| sum.add_product(x.number() - zero_point, filter.into()))
}

/// Checks the operands of an op with a filter whose results have `channels` channels: x is quantised and the filter i8. The bias has an
/// element for each channel, i32 or, for x of type i16, also i64. There is a multiplier for each channel, or one for all.
pub(in crate::ops) fn check_operands(inputs: &[TensorType], channels: u32) -> Result<()> {
    let [x, filter, bias, multipliers] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if !matches!(x.dtype, DType::I8 | DType::I16) {
        return Err(Error::DType { input: 0 });
    }
    if filter.dtype != DType::I8 {
        return Err(Error::DType { input: 1 });
    }
    if bias.dtype != DType::I32 && (bias.dtype != DType::I64 || x.dtype != DType::I16) {
        return Err(Error::DType { input: 2 });
    }
    if multipliers.dtype != DType::I32 {
        return Err(Error::DType { input: 3 });
    }
    super::elementwise::same_dims(2, &[channels], bias.shape.dims())?;
    let rows = if multipliers.shape.dims().first() == Some(&1) { 1 } else { channels };
    super::elementwise::same_dims(3, &[rows, Multiplier::WORDS as u32], multipliers.shape.dims())
}

/// Bias and multiplier of each channel of a result.
pub(in crate::ops) struct Channels<'a, S> {
    bias: &'a [S],
    multipliers: &'a [Multiplier],
}

impl<'a, S: Sum> Channels<'a, S> {
    /// Returns the channels of an op whose operands [`check_operands`] has accepted.
    pub(in crate::ops) fn of(call: &Call<'_, 'a>) -> Result<Channels<'a, S>> {
        Ok(Channels { bias: call.input(2)?.slice(), multipliers: bytemuck::try_cast_slice(call.input(3)?.bytes()).unwrap_or_default() })
    }

    /// Returns the bias and the multiplier of a channel. A multiplier that is not valid counts as 0.
    #[inline(always)]
    pub(in crate::ops) fn get(&self, channel: usize) -> (S, Multiplier) {
        let multiplier = self.multipliers.get(channel).or(self.multipliers.first().filter(|_| self.multipliers.len() == 1));
        let multiplier = multiplier.copied().filter(|multiplier| multiplier.is_valid()).unwrap_or_default();
        (self.bias.get(channel).copied().unwrap_or(S::ZERO), multiplier)
    }
}
