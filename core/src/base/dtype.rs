//! Element types, and the arithmetic traits that kernels are generic over.

use bytemuck::{CheckedBitPattern, Pod, Zeroable};
use core::fmt;

/// Type of a tensor's elements. The discriminants are the numbers in the artifact format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, CheckedBitPattern)]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 binary32.
    F32 = 1,
    /// IEEE 754 binary64.
    F64 = 2,
    /// IEEE 754 binary16: stored with 16 bits, computed in f32.
    F16 = 3,
    /// bfloat16: stored with 16 bits, computed in f32.
    Bf16 = 4,
    /// Signed 8-bit integer.
    I8 = 5,
    /// Unsigned 8-bit integer.
    U8 = 6,
    /// Signed 32-bit integer.
    I32 = 7,
    /// Signed 64-bit integer.
    I64 = 8,
    /// Boolean, one byte per element: 0 is false, anything else is true. Kernels write 0 and 1.
    Bool = 9,
    /// Signed 16-bit integer.
    I16 = 10,
}

impl DType {
    /// All element types, in the order of their numbers.
    pub const ALL: [DType; 10] =
        [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I8, DType::U8, DType::I32, DType::I64, DType::Bool, DType::I16];

    /// Returns the element type that has the number `code` in artifacts, or `None` if there is none.
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
            10 => DType::I16,
            _ => return None,
        })
    }

    /// Returns the size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::Bf16 | DType::I16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    /// Returns the short name: `f32`, `i64`, `bool`, …
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
            DType::I16 => "i16",
        }
    }

    /// True for the types that gradients flow through: f16, bf16, f32 and f64.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::Bf16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Logs the text of `Display`.
#[cfg(feature = "defmt")]
impl defmt::Format for DType {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{}", self.name());
    }
}

/// Rust type of a tensor's elements. A tensor's bytes can be read as a slice of this type.
pub trait Element: Pod + PartialEq + fmt::Debug + Send + Sync {
    /// Element type of a tensor with elements of this Rust type.
    const DTYPE: DType;
}

/// Boolean element, stored as one byte. It is not a `bool`, because bytes from a file or from the caller may have any value.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(pub u8);

impl Bool {
    /// Returns the truth value: anything but 0 is true.
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
elements!(
    f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => Bf16,
    i8 => I8, u8 => U8, i16 => I16, i32 => I32, i64 => I64, Bool => Bool
);

/// Arithmetic with TensorFlow's semantics: integers wrap on overflow.
pub trait Number: Element + PartialOrd {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Smallest value: minus infinity for floats, the minimum for integers.
    const LEAST: Self;
    /// Largest value: infinity for floats, the maximum for integers.
    const GREATEST: Self;
    /// Returns `self + other`.
    fn add(self, other: Self) -> Self;
    /// Returns `self - other`.
    fn sub(self, other: Self) -> Self;
    /// Returns `self * other`.
    fn mul(self, other: Self) -> Self;
    /// Returns `self / other`. Integers truncate toward zero. The caller rules out a zero divisor.
    fn div(self, other: Self) -> Self;
    /// Converts a count of elements to this type.
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
integers!(i8, u8, i16, i32, i64);

/// Floating-point element, with the real functions that kernels compute. The functions come from a pinned version of `libm`, so
/// every target computes the same bits.
pub trait Float: Number {
    /// Returns e to the power of `self`.
    fn exp(self) -> Self;
    /// Returns e to the power of `self`, minus 1, without loss of precision near 0.
    fn expm1(self) -> Self;
    /// Returns the natural logarithm.
    fn ln(self) -> Self;
    /// Returns the natural logarithm of 1 + `self`, without loss of precision near 0.
    fn log1p(self) -> Self;
    /// Returns the square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// Returns the sine of an angle in radians.
    fn sin(self) -> Self;
    /// Returns the cosine of an angle in radians.
    fn cos(self) -> Self;
    /// Returns the hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Returns the error function.
    fn erf(self) -> Self;
    /// Returns the largest integer that is not greater than `self`.
    fn floor(self) -> Self;
    /// Returns the smallest integer that is not less than `self`.
    fn ceil(self) -> Self;
    /// Returns the integer part, rounded toward zero.
    fn trunc(self) -> Self;
    /// Returns the nearest integer. A tie rounds to the even one.
    fn round_even(self) -> Self;
    /// Returns `self` to the power of `exponent`.
    fn pow(self, exponent: Self) -> Self;
    /// Returns the remainder of the truncated division `self / divisor`. It has the sign of `self`.
    fn rem(self, divisor: Self) -> Self;
    /// Returns the absolute value.
    fn abs(self) -> Self;
    /// Returns `-self`.
    fn neg(self) -> Self;
    /// Returns the value of this type that is nearest to `value`.
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::runtime::program::checksum;
    use std::vec::Vec;

    /// Number of arguments of each function.
    const COUNT: u64 = 1 << 16;

    /// Checksums of the results of the functions of [`Float`], in its order. libm 0.2.16 gave them.
    const F32: [u32; 15] = [
        0x006c_5ff2,
        0xd733_2b6e,
        0xb7cd_603d,
        0xab26_e80f,
        0xf25a_53dd,
        0xbf43_f214,
        0x27db_0cc0,
        0xc733_88e5,
        0x521b_984a,
        0x459e_d2c4,
        0x0865_24f4,
        0x8571_4b1e,
        0xecea_2606,
        0x0e61_4f84,
        0xde1c_25a6,
    ];
    const F64: [u32; 15] = [
        0x1350_4bbe,
        0x3132_d2cb,
        0x18f1_e960,
        0x7b05_cb24,
        0xc5aa_5f66,
        0x5ba3_d8ef,
        0x59af_4d67,
        0xc8d2_3162,
        0x56c2_5b9b,
        0xf329_d0ee,
        0xd393_bcd4,
        0x9e47_3a58,
        0xc163_9452,
        0x1349_b950,
        0xa8ce_4d8c,
    ];

    /// Returns the checksums for two lists of arguments. NaN counts as 0.
    fn checksums<T: Float>(first: &[T], second: &[T]) -> Vec<u32> {
        let one: [fn(T) -> T; 13] =
            [T::exp, T::expm1, T::ln, T::log1p, T::sqrt, T::sin, T::cos, T::tanh, T::erf, T::floor, T::ceil, T::trunc, T::round_even];
        let two: [fn(T, T) -> T; 2] = [T::pow, T::rem];
        let sum = |results: Vec<T>| {
            let results: Vec<T> = results.into_iter().map(|y| if y.partial_cmp(&y).is_some() { y } else { T::ZERO }).collect();
            checksum(bytemuck::cast_slice(&results))
        };
        let one = one.iter().map(|f| sum(first.iter().map(|&x| f(x)).collect()));
        one.chain(two.iter().map(|f| sum(first.iter().zip(second).map(|(&x, &y)| f(x, y)).collect()))).collect()
    }

    /// The bits of the functions are part of gradlet's results. A version of libm with other bits must not be used.
    #[test]
    fn real_functions_have_the_bits_of_libm_0_2_16() {
        // Arguments of every magnitude, and between -32 and 32.
        let bits = |i: u64, step: u64| (i + 1).wrapping_mul(step);
        let small = |i: u64| i as f64 / (COUNT / 64) as f64 - 32.0;
        let f32s = |step| (0..COUNT).flat_map(move |i| [f32::from_bits((bits(i, step) >> 32) as u32), small(i) as f32]);
        let f64s = |step| (0..COUNT).flat_map(move |i| [f64::from_bits(bits(i, step)), small(i)]);
        let steps = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
        let [first, second] = steps.map(|step| f32s(step).collect::<Vec<_>>());
        assert_eq!(checksums(&first, &second), F32);
        let [first, second] = steps.map(|step| f64s(step).collect::<Vec<_>>());
        assert_eq!(checksums(&first, &second), F64);
    }
}
