//! IEEE 754 numbers of 16 bits.

use crate::machine::registers::Value;

/// A half, by its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half(pub u16);

impl Value for Half {
    type Word = u32;
    #[inline(always)]
    fn from_word(word: u32) -> Self {
        Half(word as u16)
    }
    #[inline(always)]
    fn to_word(self) -> u32 {
        self.0.into()
    }
}

impl Half {
    /// The value; every half is an f32.
    pub fn wide(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let (exponent, fraction) = (self.0 >> 10 & 31, u32::from(self.0 & 0x3ff));
        match (exponent, fraction) {
            (31, 0) => f32::from_bits(sign | 0x7f80_0000),
            (31, _) => f32::from_bits(0x7fff_ffff),
            (0, _) => f32::from_bits(sign | (fraction as f32 / 16_777_216.0).to_bits()),
            _ => f32::from_bits(sign | (u32::from(exponent) + 112) << 23 | fraction << 13),
        }
    }

    /// The nearest half, ties to even.
    pub fn nearest(value: f64) -> Half {
        let sign = ((value.to_bits() >> 48) & 0x8000) as u16;
        let magnitude = value.abs();
        if value.is_nan() {
            return Half(0x7fff);
        }
        // From here on the nearest half is infinite.
        if magnitude >= 65_520.0 {
            return Half(sign | 0x7c00);
        }
        // The distance of halves around the value, a power of two: counting in it makes the fraction an integer.
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-14);
        let unit = f64::from_bits(((exponent - 10 + 1023) as u64) << 52);
        let steps = (magnitude / unit).round_ties_even() as u16;
        // A carry out of the fraction raises the exponent, as it should.
        Half(sign | ((((exponent + 14) as u16) << 10) + steps))
    }

    /// The half towards zero.
    pub fn truncated(value: f64) -> Half {
        let near = Half::nearest(value);
        if f64::from(near.wide()).abs() > value.abs() { Half(near.0 - 1) } else { near }
    }
}
