//! Fixed-point arithmetic of quantised ops, with TensorFlow Lite's roundings.

use bytemuck::{Pod, Zeroable};

/// Positive real number as a fixed-point number: `value / 2³¹ · 2^exponent`.
///
/// It converts a sum of products to the scale of a result. TensorFlow Lite rounds such a product once or twice, which differs by at most
/// one. Each op says which of the two it has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Multiplier {
    /// Mantissa: 0, or at least 2³⁰.
    pub value: i32,
    /// Exponent, from -31 to 30.
    pub exponent: i32,
}

impl Multiplier {
    /// Number of attribute words of a multiplier.
    pub(in crate::ops) const WORDS: usize = 2;

    /// Returns the multiplier that is nearest to `real`. A number below 2⁻³² is 0, and one that is too large is the greatest multiplier.
    #[cfg(feature = "alloc")]
    pub fn new(real: f64) -> Multiplier {
        if real.is_nan() || real <= 0.0 {
            return Multiplier::default();
        }
        let (mantissa, mut exponent) = libm::frexp(real);
        let mut value = libm::round(mantissa * (1u64 << 31) as f64) as i64;
        if value == 1 << 31 {
            value /= 2;
            exponent += 1;
        }
        match exponent {
            ..-31 => Multiplier::default(),
            31.. => Multiplier { value: i32::MAX, exponent: 30 },
            _ => Multiplier { value: value as i32, exponent },
        }
    }

    /// True if the multiplier has the form that [`Multiplier::new`] produces.
    pub(in crate::ops) fn is_valid(self) -> bool {
        self.value >= 0 && (-31..=30).contains(&self.exponent)
    }

    /// Returns the product with `x`, rounded to 31 bits after the point, and then to an integer. Ties of the first rounding go up, and
    /// ties of the second away from zero.
    #[inline(always)]
    pub(in crate::ops) fn twice(self, x: i32) -> i32 {
        let product = i64::from(x.wrapping_shl(self.exponent.max(0) as u32)) * i64::from(self.value);
        // The value is not negative, so the upper half fits.
        rounding_shift(((product + (1 << 30)) >> 31) as i32, (-self.exponent).max(0) as u32)
    }

    /// Returns the product with `x`, rounded to an integer. Ties go away from zero.
    #[inline(always)]
    pub fn once(self, x: i32) -> i32 {
        let (product, shift) = (i64::from(x) * i64::from(self.value), 31i32.wrapping_sub(self.exponent) as u32 & 63);
        (product.wrapping_add(1i64.wrapping_shl(shift.wrapping_sub(1))).wrapping_add(product >> 63) >> shift) as i32
    }

    /// Returns the product with `x`, rounded to an integer. Ties go away from zero.
    #[inline(always)]
    pub(in crate::ops) fn once_wide(self, x: i64) -> i32 {
        let (product, shift) = (i128::from(x) * i128::from(self.value), 31i32.wrapping_sub(self.exponent) as u32 & 63);
        ((product + 1i128.wrapping_shl(shift.wrapping_sub(1)) + (product >> 127)) >> shift) as i32
    }

    /// Returns the product with `x`, of at most 48 bits, and 15 bits of the multiplier, rounded to an integer. Ties go up.
    #[inline(always)]
    pub(in crate::ops) fn wide(self, x: i64) -> i32 {
        let reduced = if self.value < 0x7fff_0000 { (self.value + (1 << 15)) >> 16 } else { 0x7fff };
        let shift = (15 - self.exponent) as u32 & 63;
        (x.wrapping_mul(reduced.into()).wrapping_add(1i64.wrapping_shl(shift.wrapping_sub(1))) >> shift) as i32
    }
}

/// Multiplier of small numbers: [`Multiplier::twice`] in a form that takes a loop a few instructions.
#[derive(Clone, Copy)]
pub(in crate::ops) struct SmallMultiplier {
    left: u32,
    value: i32,
    /// A half of `2^right`, and the number that is added to the product, times `2^right`.
    offset: i32,
    /// From 1 to 30, or 0 if this form would not have the same bits.
    right: u32,
}

impl SmallMultiplier {
    /// Returns the form of `multiplier` for numbers from `-2^bits` up to, but not including, `2^bits`, which are shifted to the left by
    /// `shift` first.
    pub(in crate::ops) fn new(multiplier: Multiplier, shift: u32, bits: u32) -> SmallMultiplier {
        let Multiplier { value, exponent } = multiplier;
        // A half of a shifted number is exact.
        let is_half = (value, exponent) == (1 << 30, 0) && shift > 0;
        let (left, right) = if is_half { (shift + 2, 1) } else { (shift + 1, exponent.wrapping_neg() as u32) };
        let right = if (1..=30).contains(&right) && left + bits <= 31 { right } else { 0 };
        SmallMultiplier { left, value, offset: 1i32.wrapping_shl(right) >> 1, right }
    }

    /// Adds `number`, of at most 16 bits, to the product.
    pub(in crate::ops) fn plus(self, number: i32) -> SmallMultiplier {
        let added = i64::from(number) << self.right;
        let right = if added.unsigned_abs() <= 1 << 29 { self.right } else { 0 };
        SmallMultiplier { offset: self.offset.wrapping_add(added as i32), right, ..self }
    }

    /// True if [`SmallMultiplier::of`] has the bits of [`Multiplier::twice`].
    pub(in crate::ops) fn is_exact(&self) -> bool {
        self.right != 0
    }

    /// Returns the product with `x`, rounded twice.
    #[inline(always)]
    pub(in crate::ops) fn of(&self, x: i32) -> i32 {
        let high = ((i64::from(x.wrapping_shl(self.left)) * i64::from(self.value) + (1 << 31)) >> 32) as i32;
        high.wrapping_add(high >> 31).wrapping_add(self.offset).wrapping_shr(self.right)
    }
}

/// Returns the upper half of the doubled product, rounded. Ties go up. `-2³¹ · -2³¹` is the greatest number.
#[inline(always)]
pub(in crate::ops) fn doubling_high(a: i32, b: i32) -> i32 {
    if a == i32::MIN && b == i32::MIN {
        return i32::MAX;
    }
    ((i64::from(a) * i64::from(b) + (1 << 30)) >> 31) as i32
}

/// Returns `x / 2^shift`, rounded. Ties go away from zero. `shift` is at most 31.
#[inline(always)]
pub(in crate::ops) fn rounding_shift(x: i32, shift: u32) -> i32 {
    let mask = 1u32.wrapping_shl(shift).wrapping_sub(1);
    let above = (x as u32 & mask) > (mask >> 1).wrapping_add(u32::from(x < 0));
    x.wrapping_shr(shift).wrapping_add(i32::from(above))
}

/// Returns `1 / √x` for an `x` that is not negative, by five steps of Newton's method. For 0, returns that of 1.
pub(in crate::ops) fn inverse_square_root(x: i32) -> Multiplier {
    if x <= 1 {
        return Multiplier { value: i32::MAX, exponent: 0 };
    }
    // The mantissa, from 2²⁷ to 2²⁹, and a power of 4.
    let pairs = (x.leading_zeros() as i32 - 1) / 2 - 1;
    let mantissa = if pairs < 0 { x >> (-2 * pairs) } else { x << (2 * pairs) };
    // From here on, numbers have 28 bits after the point, and a product of two is shifted by 3 bits.
    let product = |a, b| i64::from(doubling_high(a, b));
    let saturated = |x: i64, shift: u32| (x << shift).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    let (number, three_halves) = (mantissa >> 1, 3 << 27);
    let half = rounding_shift(number, 1);
    let mut root = 1 << 28;
    for _ in 0..5 {
        let cube = saturated(product(product(root, root) as i32, root), 6);
        root = saturated(product(three_halves, root) - product(half, cube), 3);
    }
    const HALF_SQRT_2: i32 = 1_518_500_250;
    let (value, shift) = (doubling_high(root, HALF_SQRT_2), 11 - pairs);
    Multiplier { value: value.wrapping_shl((-shift).max(0) as u32), exponent: -shift.max(0) }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;

    /// A sum, a multiplier, and the exact product of both.
    fn samples() -> impl Iterator<Item = (i32, Multiplier, i128)> {
        let bits = |i: u64, step: u64| (i + 1).wrapping_mul(step);
        (0..40_000).map(move |i| {
            let x = (bits(i, 0x9e37_79b9_7f4a_7c15) >> 33) as i32 >> (i % 16);
            let x = if i % 2 == 0 { x } else { -x };
            let value = (1 << 30) | (bits(i, 0xd1b5_4a32_d192_ed03) >> 34) as i32;
            (x, Multiplier { value, exponent: -((i % 20) as i32) }, i128::from(x) * i128::from(value))
        })
    }

    #[test]
    fn once_and_wide_round_the_product_once() {
        for (x, multiplier, product) in samples() {
            let shift = 31 - multiplier.exponent;
            let nearest = product.signum() * ((product.abs() + (1 << (shift - 1))) >> shift);
            assert_eq!(i128::from(multiplier.once(x)), nearest);
            assert_eq!(i128::from(multiplier.once_wide(x.into())), nearest);
            let reduced = i128::from(((i64::from(multiplier.value) + (1 << 15)) >> 16).min(0x7fff));
            let shift = shift - 16;
            assert_eq!(i128::from(multiplier.wide(x.into())), (i128::from(x) * reduced + (1 << (shift - 1))) >> shift);
        }
    }

    #[test]
    fn twice_rounds_twice() {
        for (x, multiplier, product) in samples() {
            let first = (product + (1 << 30)) >> 31;
            let half = if multiplier.exponent == 0 { 0 } else { 1i128 << (-multiplier.exponent - 1) };
            let second = first.signum() * ((first.abs() + half) >> -multiplier.exponent);
            assert_eq!(i128::from(multiplier.twice(x)), second, "{x} {multiplier:?}");
        }
        assert_eq!(doubling_high(i32::MIN, i32::MIN), i32::MAX);
        assert_eq!(Multiplier { value: 1 << 30, exponent: 4 }.twice(3), 24);
    }

    #[test]
    fn a_small_multiplier_has_the_bits_of_twice() {
        for (x, multiplier, _) in samples() {
            for (shift, bits) in [(0, 16), (0, 30), (7, 8), (15, 15), (20, 8)] {
                let whole = SmallMultiplier::new(multiplier, shift, bits);
                assert_eq!(whole.is_exact(), multiplier.exponent < 0, "{multiplier:?}");
                let (least, greatest) = (-(1 << bits), (1 << bits) - 1);
                for x in [x >> (31 - bits), least, greatest, 0, -1].into_iter().filter(|_| whole.is_exact()) {
                    assert_eq!(whole.of(x), multiplier.twice(x << shift), "{x} {multiplier:?}");
                    let sum = whole.plus(-128);
                    assert!(sum.is_exact() == (multiplier.exponent >= -22) && (!sum.is_exact() || sum.of(x) == whole.of(x) - 128));
                }
            }
        }
        let half = Multiplier { value: 1 << 30, exponent: 0 };
        for x in [-255, -3, -1, 0, 1, 254] {
            for shift in [1, 7, 20] {
                assert_eq!(SmallMultiplier::new(half, shift, 8).of(x), half.twice(x << shift));
            }
        }
        let refused = [(31, 0, 0, 8), (1 << 30, 0, 0, 8), (1 << 30, 1, 0, 8), (1 << 30, -31, 0, 8), (1 << 30, -1, 20, 11), (0, 0, 0, 8)];
        for (value, exponent, shift, bits) in refused {
            assert!(!SmallMultiplier::new(Multiplier { value, exponent }, shift, bits).is_exact(), "{value} {exponent}");
        }
    }

    #[test]
    fn near_the_real_inverse_square_root() {
        let numbers = (2..3000).chain((0..18).map(|i| 3000 << i)).chain([(1 << 29) - 1, 1 << 29, i32::MAX]);
        for x in numbers {
            let Multiplier { value, exponent } = inverse_square_root(x);
            let (got, want) = (libm::ldexp(value.into(), exponent - 31), 1.0 / libm::sqrt(x.into()));
            assert!((got / want - 1.0).abs() < 2e-6, "{x}: {got}, not {want}");
        }
        assert_eq!([0, 1].map(inverse_square_root), [Multiplier { value: i32::MAX, exponent: 0 }; 2]);
    }

    #[test]
    fn a_real_number_becomes_the_nearest_multiplier() {
        assert_eq!(Multiplier::new(0.5), Multiplier { value: 1 << 30, exponent: 0 });
        assert_eq!(Multiplier::new(1.0 - 1e-15), Multiplier { value: 1 << 30, exponent: 1 });
        assert_eq!(Multiplier::new(3.0), Multiplier { value: 3 << 29, exponent: 2 });
        assert_eq!(Multiplier::new(1e-12), Multiplier::default());
        assert_eq!(Multiplier::new(1e12), Multiplier { value: i32::MAX, exponent: 30 });
        assert_eq!(Multiplier::new(f64::NAN), Multiplier::default());
    }
}
