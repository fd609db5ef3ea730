//! Floating point. Every NaN that arithmetic gives has the bits that NVIDIA's GPUs give.

/// Operations of both widths.
pub trait Float: Copy + PartialOrd {
    /// The value, or the one NaN.
    fn canonical(self) -> Self;
    /// The smaller one; a NaN only if both are; -0 below +0.
    fn smaller(self, other: Self) -> Self;
    /// The larger one; a NaN only if both are; -0 below +0.
    fn larger(self, other: Self) -> Self;
    /// A value below the normal range becomes zero with its sign.
    fn flushed(self) -> Self;
    /// The value, at least 0 and at most 1; 0 for a NaN.
    fn saturated(self) -> Self;
    /// Whether `testp`'s property holds.
    fn has(self, property: Property) -> bool;
    /// Whether neither is a NaN.
    fn is_ordered(self, other: Self) -> bool;
}

/// Property that `testp` tests.
#[derive(Clone, Copy, Debug)]
pub enum Property {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

macro_rules! float {
    ($type:ty, $nan:literal) => {
        impl Float for $type {
            #[inline(always)]
            fn canonical(self) -> Self {
                if self.is_nan() { <$type>::from_bits($nan) } else { self }
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                match (self < other, self > other) {
                    (true, _) => self,
                    (_, true) => other,
                    _ if self == other => <$type>::from_bits(self.to_bits() | other.to_bits()),
                    _ if self.is_nan() => other.canonical(),
                    _ => self.canonical(),
                }
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                match (self > other, self < other) {
                    (true, _) => self,
                    (_, true) => other,
                    _ if self == other => <$type>::from_bits(self.to_bits() & other.to_bits()),
                    _ if self.is_nan() => other.canonical(),
                    _ => self.canonical(),
                }
            }
            #[inline(always)]
            fn flushed(self) -> Self {
                if self.abs() < <$type>::MIN_POSITIVE { (0.0 as $type).copysign(self) } else { self }
            }
            #[inline(always)]
            fn saturated(self) -> Self {
                // A comparison with a NaN does not hold.
                if self > 0.0 { if self < 1.0 { self } else { 1.0 } } else { 0.0 }
            }
            #[inline(always)]
            fn has(self, property: Property) -> bool {
                match property {
                    Property::Finite => self.is_finite(),
                    Property::Infinite => self.is_infinite(),
                    Property::Number => !self.is_nan(),
                    Property::NotANumber => self.is_nan(),
                    Property::Normal => self.is_normal(),
                    Property::Subnormal => self.is_subnormal(),
                }
            }
            #[inline(always)]
            fn is_ordered(self, other: Self) -> bool {
                !self.is_nan() && !other.is_nan()
            }
        }
    };
}

float!(f32, 0x7fff_ffff);
float!(f64, 0xfff8_0000_0000_0000);

/// A function of an f32, computed with f64 and rounded: the emulator's `approx` functions are better than a GPU's.
#[inline(always)]
pub fn through_f64(value: f32, f: impl Fn(f64) -> f64) -> f32 {
    (f(f64::from(value)) as f32).canonical()
}

/// The gross approximations of 1/x and 1/√x in f64: 21 bits, and zero below the normal range.
#[inline(always)]
pub fn gross(value: f64, f: impl Fn(f64) -> f64) -> f64 {
    let exact = f(value.flushed()).flushed();
    if exact.is_finite() && exact != 0.0 {
        return f64::from_bits((exact.to_bits() + 0x8000_0000) & !0xffff_ffff);
    }
    exact.canonical()
}
