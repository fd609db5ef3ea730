//! Numbers of 16 bits with which instructions compute one or two at a time, as f64 and rounded once.

use super::{
    half::Half,
    rounding::{Rounding, narrowed},
};
use crate::machine::registers::Value;

/// A bf16, by its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brain(pub u16);

/// Two numbers, the first one in the lower bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<T>(pub T, pub T);

/// A number of 16 bits.
pub trait Short: Copy {
    fn from_bits(bits: u16) -> Self;
    fn bits(self) -> u16;
    /// The value.
    fn value(self) -> f64;
    /// The nearest number, ties to even.
    fn rounded(value: f64) -> Self;
}

/// One or two numbers of 16 bits.
pub trait Packed: Value {
    fn map(self, f: impl Fn(f64) -> f64) -> Self;
    fn map2(self, b: Self, f: impl Fn(f64, f64) -> f64) -> Self;
    fn map3(self, b: Self, c: Self, f: impl Fn(f64, f64, f64) -> f64) -> Self;
}

impl Brain {
    /// The value; every bf16 is an f32.
    pub fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// The number towards zero.
    pub fn truncated(value: f32) -> Brain {
        if value.is_nan() { Brain(0x7fff) } else { Brain((value.to_bits() >> 16) as u16) }
    }
}

impl Short for Half {
    fn from_bits(bits: u16) -> Self {
        Half(bits)
    }
    fn bits(self) -> u16 {
        self.0
    }
    fn value(self) -> f64 {
        self.wide().into()
    }
    fn rounded(value: f64) -> Self {
        Half::nearest(value)
    }
}

impl Short for Brain {
    fn from_bits(bits: u16) -> Self {
        Brain(bits)
    }
    fn bits(self) -> u16 {
        self.0
    }
    fn value(self) -> f64 {
        self.wide().into()
    }
    fn rounded(value: f64) -> Self {
        if value.is_nan() {
            return Brain(0x7fff);
        }
        // The last bit remembers that something was cut off, so that the second rounding sees no false tie.
        let cut = narrowed(value, 0.0, Rounding::Zero);
        let bits = cut.to_bits() | u32::from(f64::from(cut) != value && cut.is_finite());
        Brain(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}

impl Value for Brain {
    type Word = u32;
    #[inline(always)]
    fn from_word(word: u32) -> Self {
        Brain(word as u16)
    }
    #[inline(always)]
    fn to_word(self) -> u32 {
        self.0.into()
    }
}

impl<T: Short> Value for Pair<T> {
    type Word = u32;
    #[inline(always)]
    fn from_word(word: u32) -> Self {
        Pair(T::from_bits(word as u16), T::from_bits((word >> 16) as u16))
    }
    #[inline(always)]
    fn to_word(self) -> u32 {
        u32::from(self.0.bits()) | u32::from(self.1.bits()) << 16
    }
}

impl Packed for Brain {
    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Brain::rounded(f(self.value()))
    }
    fn map2(self, b: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Brain::rounded(f(self.value(), b.value()))
    }
    fn map3(self, b: Self, c: Self, f: impl Fn(f64, f64, f64) -> f64) -> Self {
        Brain::rounded(f(self.value(), b.value(), c.value()))
    }
}

impl<T: Short> Packed for Pair<T> {
    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Pair(T::rounded(f(self.0.value())), T::rounded(f(self.1.value())))
    }
    fn map2(self, b: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Pair(T::rounded(f(self.0.value(), b.0.value())), T::rounded(f(self.1.value(), b.1.value())))
    }
    fn map3(self, b: Self, c: Self, f: impl Fn(f64, f64, f64) -> f64) -> Self {
        let of = |a: T, b: T, c: T| T::rounded(f(a.value(), b.value(), c.value()));
        Pair(of(self.0, b.0, c.0), of(self.1, b.1, c.1))
    }
}

/// `a * b + c` of numbers of 16 bits, whose last bit remembers what was cut off.
pub fn fused(a: f64, b: f64, c: f64) -> f64 {
    let product = a * b;
    let sum = product + c;
    let from_c = sum - product;
    let error = (product - (sum - from_c)) + (c - from_c);
    if error == 0.0 || !sum.is_finite() || sum.to_bits() & 1 != 0 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// The f32 with 10 bits of fraction that is nearest, ties to even or away from zero, or towards zero.
pub fn tf32(value: f32, rounding: Tf32Rounding) -> f32 {
    let bits = value.to_bits();
    if value.is_nan() {
        return f32::from_bits(0x7fff_ffff);
    }
    let added = match rounding {
        Tf32Rounding::Away => 0x1000,
        Tf32Rounding::Even => 0xfff + (bits >> 13 & 1),
        Tf32Rounding::Zero => 0,
    };
    f32::from_bits((bits + added) & !0x1fff)
}

/// Rounding to TF32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tf32Rounding {
    Away,
    Even,
    Zero,
}
