//! Elementary functions without branches or calls, which the compiler vectorizes.
//!
//! The coefficients of each polynomial minimize the largest error of the remainder that a comment names.

pub mod double;
pub mod single;

use gradlet_core::tensor::Element;
use std::ops::{Add, Div, Mul, Sub};

/// A float with elementary functions.
pub trait Elementary:
    Element + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Send + Sync
{
    /// Minus infinity.
    const LEAST: Self;
    /// Infinity.
    const MOST: Self;
    /// The number 1.
    const ONE: Self;

    /// Returns e to the power of `self`.
    fn exp(self) -> Self;
    /// Returns the natural logarithm.
    fn ln(self) -> Self;
    /// Returns the square root.
    fn sqrt(self) -> Self;
    /// Returns `self` to the power of `power`.
    fn powf(self, power: Self) -> Self;
    /// Returns the number as this type.
    fn from_f32(number: f32) -> Self;
}

macro_rules! elementary {
    ($($of:ident $functions:ident)*) => {$(
        impl Elementary for $of {
            const LEAST: $of = $of::NEG_INFINITY;
            const MOST: $of = $of::INFINITY;
            const ONE: $of = 1.0;

            #[inline(always)]
            fn exp(self) -> $of {
                $functions::exp(self)
            }

            #[inline(always)]
            fn ln(self) -> $of {
                $functions::ln(self)
            }

            #[inline(always)]
            fn sqrt(self) -> $of {
                self.sqrt()
            }

            fn powf(self, power: $of) -> $of {
                self.powf(power)
            }

            fn from_f32(number: f32) -> $of {
                number.into()
            }
        }
    )*};
}
elementary! { f32 single f64 double }

/// Returns the greater of two numbers, or NaN if one of them is NaN.
#[inline(always)]
pub fn greater<T: Elementary>(a: T, b: T) -> T {
    if a <= b {
        b
    } else if b < a {
        a
    } else {
        a + b
    }
}

/// Returns the smaller of two numbers, or NaN if one of them is NaN.
#[inline(always)]
pub fn smaller<T: Elementary>(a: T, b: T) -> T {
    if a >= b {
        b
    } else if b > a {
        a
    } else {
        a + b
    }
}
