//! Element types and the small arithmetic traits that kernels are generic over.

use bytemuck::{CheckedBitPattern, Pod, Zeroable};
use core::fmt;

/// The type of a tensor's elements. The numbers are those of the artifact format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, CheckedBitPattern)]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 binary32.
    F32 = 1,
    /// IEEE 754 binary64.
    F64 = 2,
    /// IEEE 754 binary16; stored so, computed in f32.
    F16 = 3,
    /// bfloat16; stored so, computed in f32.
    Bf16 = 4,
    /// Signed 8-bit integer.
    I8 = 5,
    /// Unsigned 8-bit integer.
    U8 = 6,
    /// Signed 32-bit integer.
    I32 = 7,
    /// Signed 64-bit integer.
    I64 = 8,
    /// One byte an element: 0 is false, anything else is true; kernels write 0 and 1.
    Bool = 9,
}

impl DType {
    /// Every element type, in the order of their numbers.
    pub const ALL: [DType; 9] =
        [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I8, DType::U8, DType::I32, DType::I64, DType::Bool];

    /// The element type with the artifact number `code`, if there is one.
    #[inline]
    pub const fn from_code(code: u8) -> Option<DType> {
        Some(match code {
            1 => DType::F32,
            2 => DType::F64,
            3 => DType::F16,
            4 => DType::Bf16,
            5 => DType::I8,
            6 => DType::U8,
            7 => DType::I32,
            8 => DType::I64,
            9 => DType::Bool,
            _ => return None,
        })
    }

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    /// The short name: `f32`, `i64`, `bool`, …
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::Bool => "bool",
        }
    }

    /// True for f16, bf16, f32 and f64: the types that gradients flow through.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::Bf16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that a tensor's bytes can be read as.
pub trait Element: Pod + PartialEq + fmt::Debug + Send + Sync {
    /// The element type that is stored so.
    const DTYPE: DType;
}

/// A stored boolean. Bytes from outside may hold any value, so this is not `bool`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(pub u8);

impl Bool {
    /// The truth value: anything but 0 is true.
    pub fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Bool {
        Bool(u8::from(value))
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Bool) -> bool {
        self.get() == other.get()
    }
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $ty { const DTYPE: DType = DType::$dtype; })*
    };
}
elements!(f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => Bf16, i8 => I8, u8 => U8, i32 => I32, i64 => I64, Bool => Bool);

/// Arithmetic as TensorFlow has it: integers wrap.
pub trait Number: Element + PartialOrd {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// What no number is less than: minus infinity, or the least integer.
    const LEAST: Self;
    /// What no number is greater than: infinity, or the greatest integer.
    const GREATEST: Self;
    /// `self + other`.
    fn add(self, other: Self) -> Self;
    /// `self - other`.
    fn sub(self, other: Self) -> Self;
    /// `self * other`.
    fn mul(self, other: Self) -> Self;
    /// `self / other`; integers truncate toward zero, and the caller has excluded a zero divisor.
    fn div(self, other: Self) -> Self;
    /// A count of elements as a number of this type.
    fn from_count(count: usize) -> Self;
}

macro_rules! floats {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LEAST: Self = <$ty>::NEG_INFINITY;
            const GREATEST: Self = <$ty>::INFINITY;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn div(self, other: Self) -> Self { self / other }
            #[inline(always)]
            fn from_count(count: usize) -> Self { count as $ty }
        }
    )*};
}
floats!(f32, f64);

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LEAST: Self = <$ty>::MIN;
            const GREATEST: Self = <$ty>::MAX;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn div(self, other: Self) -> Self { self.checked_div(other).unwrap_or(if other == 0 { 0 } else { self }) }
            #[inline(always)]
            fn from_count(count: usize) -> Self { count as $ty }
        }
    )*};
}
integers!(i8, u8, i32, i64);

/// Real functions. They come from `libm`, pinned, so that every target computes the same bits.
pub trait Float: Number {
    /// e to the power of `self`.
    fn exp(self) -> Self;
    /// e to the power of `self`, less 1: exact near 0.
    fn expm1(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// The natural logarithm of 1 + `self`: exact near 0.
    fn log1p(self) -> Self;
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// The sine, of radians.
    fn sin(self) -> Self;
    /// The cosine, of radians.
    fn cos(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// The greatest whole number that is not above `self`.
    fn floor(self) -> Self;
    /// The least whole number that is not below `self`.
    fn ceil(self) -> Self;
    /// The whole part.
    fn trunc(self) -> Self;
    /// The nearest whole number, the even one of two.
    fn round_even(self) -> Self;
    /// `self` to the power of `exponent`.
    fn pow(self, exponent: Self) -> Self;
    /// The remainder of `self / divisor` truncated, with the sign of `self`.
    fn rem(self, divisor: Self) -> Self;
    /// `self` without its sign.
    fn abs(self) -> Self;
    /// `self` with the other sign.
    fn neg(self) -> Self;
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
}

macro_rules! reals {
    ($($ty:ident: $($name:ident = $function:ident),*; $($pair:ident = $of_two:ident),*;)*) => {$(
        impl Float for $ty {
            $(fn $name(self) -> Self { libm::$function(self) })*
            $(fn $pair(self, other: Self) -> Self { libm::$of_two(self, other) })*
            #[inline(always)]
            fn abs(self) -> Self { $ty::abs(self) }
            #[inline(always)]
            fn neg(self) -> Self { -self }
            fn from_f64(value: f64) -> Self { value as $ty }
        }
    )*};
}
reals! {
    f32: exp = expf, expm1 = expm1f, ln = logf, log1p = log1pf, sqrt = sqrtf, sin = sinf, cos = cosf, tanh = tanhf, erf = erff,
        floor = floorf, ceil = ceilf, trunc = truncf, round_even = rintf; pow = powf, rem = fmodf;
    f64: exp = exp, expm1 = expm1, ln = log, log1p = log1p, sqrt = sqrt, sin = sin, cos = cos, tanh = tanh, erf = erf,
        floor = floor, ceil = ceil, trunc = trunc, round_even = rint; pow = pow, rem = fmod;
}
