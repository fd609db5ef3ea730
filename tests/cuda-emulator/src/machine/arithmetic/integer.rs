//! Integers. Where PTX leaves a result open, it is what NVIDIA's GPUs give.

/// Integers of every width, for what the standard library has no common trait.
pub trait Integer: Copy {
    /// The upper half of the product.
    fn high(self, other: Self) -> Self;
    /// The quotient; all bits set for a divisor of zero.
    fn quotient(self, other: Self) -> Self;
    /// The remainder; the dividend for a divisor of zero.
    fn remainder(self, other: Self) -> Self;
    /// The shift by at most the width.
    fn shifted_left(self, by: u32) -> Self;
    /// The shift by at most the width; of a signed integer, with its sign.
    fn shifted_right(self, by: u32) -> Self;
    /// The sum and the carry out of the top bit.
    fn sum(self, other: Self, carry: bool) -> (Self, bool);
    /// The difference, and whether there was no borrow.
    fn difference(self, other: Self, borrow: bool) -> (Self, bool);
    /// The field of `length` bits from `start`, signed or not.
    fn field(self, start: u32, length: u32) -> Self;
    /// The position of the highest bit that differs from the sign, or all bits set.
    fn highest(self) -> u32;
}

macro_rules! integer {
    ($($type:ty, $unsigned:ty, $double:ty, $signed:literal;)*) => {$(
        impl Integer for $type {
            #[inline(always)]
            fn high(self, other: Self) -> Self {
                (self as $double * other as $double >> Self::BITS) as Self
            }
            #[inline(always)]
            fn quotient(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn remainder(self, other: Self) -> Self {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn shifted_left(self, by: u32) -> Self {
                if by < Self::BITS { self << by } else { 0 }
            }
            #[inline(always)]
            fn shifted_right(self, by: u32) -> Self {
                if by < Self::BITS { self >> by } else { self >> (Self::BITS - 1) >> 1 }
            }
            #[inline(always)]
            fn sum(self, other: Self, carry: bool) -> (Self, bool) {
                let (sum, first) = (self as $unsigned).overflowing_add(other as $unsigned);
                let (sum, second) = sum.overflowing_add(carry.into());
                (sum as Self, first | second)
            }
            #[inline(always)]
            fn difference(self, other: Self, borrow: bool) -> (Self, bool) {
                let (rest, first) = (self as $unsigned).overflowing_sub(other as $unsigned);
                let (rest, second) = rest.overflowing_sub(borrow.into());
                (rest as Self, !(first | second))
            }
            #[inline(always)]
            fn field(self, start: u32, length: u32) -> Self {
                let (start, length) = (start & 255, length & 255);
                if length == 0 {
                    return 0;
                }
                let value = self.shifted_right(start);
                let unused = Self::BITS.saturating_sub(length);
                if $signed && start + length > Self::BITS {
                    return value;
                }
                value << unused >> unused
            }
            #[inline(always)]
            fn highest(self) -> u32 {
                let bits = if $signed && (self >> (Self::BITS - 1)) != 0 { !self } else { self };
                (Self::BITS - 1).wrapping_sub((bits as $unsigned).leading_zeros())
            }
        }
    )*};
}

integer! {
    u16, u16, u32, false;
    i16, u16, i32, true;
    u32, u32, u64, false;
    i32, u32, i64, true;
    u64, u64, u128, false;
    i64, u64, i128, true;
}

/// `lop3`: each bit of the result is the bit of the table that the bits of the operands number.
#[inline(always)]
pub fn lookup(a: u32, b: u32, c: u32, table: u16) -> u32 {
    let mut out = 0;
    for index in 0..8 {
        if table >> index & 1 != 0 {
            let pick = |value: u32, bit: u32| if index >> bit & 1 != 0 { value } else { !value };
            out |= pick(a, 2) & pick(b, 1) & pick(c, 0);
        }
    }
    out
}

/// `bfi`: the field of `length` bits from `start` in `b`, replaced by the low bits of `a`.
#[inline(always)]
pub fn insert(a: u64, b: u64, start: u32, length: u32, width: u32) -> u64 {
    let (start, length) = (start & 255, length & 255);
    if length == 0 || start >= width {
        return b;
    }
    let mask = (u64::MAX >> (64 - length.min(64))) << start;
    b & !mask | a << start & mask
}

/// `prmt`: bytes of the pair `b:a`, chosen by the nibbles of `selector`.
#[inline(always)]
pub fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let pick = |nibble: u32| {
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte }
    };
    u32::from_le_bytes([pick(selector), pick(selector >> 4), pick(selector >> 8), pick(selector >> 12)])
}

/// The selector of [`permute`] for a mode of `prmt`, of which `c` gives two bits.
#[inline(always)]
pub fn permute_selector(mode: u16, c: u32) -> u32 {
    let c = c & 3;
    let bytes = |f: &dyn Fn(u32) -> u32| (0..4).map(|i| (f(i) & 7) << (4 * i)).sum();
    match mode {
        // f4e, b4e: four bytes from `c`, forward or backward.
        0 => bytes(&|i| c + i),
        1 => bytes(&|i| c.wrapping_sub(i)),
        // rc8: one byte four times.
        2 => bytes(&|_| c),
        // ecl, ecr: the bytes left or right of `c`, clamped.
        3 => bytes(&|i| i.max(c)),
        4 => bytes(&|i| i.min(c)),
        // rc16: one half twice.
        _ => bytes(&|i| (c & 1) * 2 + (i & 1)),
    }
}

/// `shf.l`: the upper half of `b:a`, shifted left.
#[inline(always)]
pub fn funnel_left(a: u32, b: u32, by: u32) -> u32 {
    ((u64::from(b) << 32 | u64::from(a)) << by >> 32) as u32
}

/// `shf.r`: the lower half of `b:a`, shifted right.
#[inline(always)]
pub fn funnel_right(a: u32, b: u32, by: u32) -> u32 {
    ((u64::from(b) << 32 | u64::from(a)) >> by) as u32
}

/// `dp4a`: the sum of products of four bytes each.
#[inline(always)]
pub fn dot4(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let byte = |word: u32, i: u32, signed: bool| {
        let byte = (word >> (8 * i)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    (0..4).fold(c, |sum, i| sum.wrapping_add((byte(a, i, a_signed) * byte(b, i, b_signed)) as u32))
}
