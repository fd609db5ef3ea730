//! The numbers of factors, and where lanes hold them.

use super::code::Number;

impl Number {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        if self == Number::Tf32 { 4 } else { 2 }
    }

    /// Numbers in a register.
    pub fn per_register(self) -> usize {
        4 / self.bytes()
    }

    /// The value of bits.
    #[inline(always)]
    pub fn value(self, bits: u32) -> f64 {
        match self {
            Number::Half => half(bits as u16).into(),
            Number::Brain => f32::from_bits(bits << 16).into(),
            Number::Tf32 => f32::from_bits(bits & !0x1fff).into(),
        }
    }

    /// The value of a number in a register that holds one or two.
    #[inline(always)]
    pub fn part(self, register: u32, index: usize) -> f64 {
        match self {
            Number::Tf32 => self.value(register),
            _ => self.value(register >> (16 * index) & 0xffff),
        }
    }
}

/// An f16's value, without a branch.
#[inline(always)]
fn half(bits: u16) -> f32 {
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff) << 13);
    // The exponent's bias is 15 instead of 127.
    let value = f32::from_bits(rest) * f32::from_bits((112 + 127) << 23);
    let special = if rest >= 0x7c00 << 13 { 0x7f80_0000 } else { 0 };
    f32::from_bits(value.to_bits() | special | sign)
}

/// Row or column of a lane in a fragment, and the first index along the depth that it holds.
#[inline(always)]
pub fn place(lane: usize) -> (usize, usize) {
    (lane / 4, lane % 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::arithmetic::half::Half;

    #[test]
    fn halves_have_their_values() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (half(bits), Half(bits).wide());
            assert!(found == expected && found.is_sign_negative() == expected.is_sign_negative() || found.is_nan() && expected.is_nan());
        }
    }
}
