//! Logistic function and hyperbolic tangent of 16-bit fixed-point numbers, with the bits of gemmlowp: the gates of a quantised LSTM.
//!
//! A number with `n` integer bits is a multiple of `2^(n − 15)`. All numbers here are i16, held in an i32.

use super::fixed_point::rounding_shift;

/// 1, or the nearest number, without integer bits.
const ONE: i32 = i16::MAX as i32;
/// 1 with two integer bits.
const ONE_OF_TWO_BITS: i32 = 1 << 13;
/// `exp(-1/8)` and `1/3`, without integer bits.
const EXP_OF_EIGHTH: i32 = 28918;
const THIRD: i32 = 10923;
/// `exp(-2^e)` for `e` from -2 on, without integer bits.
const EXPONENTIALS: [i32; 7] = [25520, 19875, 12055, 4435, 600, 11, 0];
/// `48/17` and `-32/17` with two integer bits: the line from which the division begins.
const INTERCEPT: i32 = 23130;
const SLOPE: i32 = -15420;
/// Least number of which the exponential is not 0.
const LEAST_EXPONENT: i32 = 32;

fn saturated(x: i32) -> i32 {
    x.clamp(i16::MIN.into(), i16::MAX.into())
}

fn wrapped(x: i32) -> i32 {
    (x as i16).into()
}

/// Returns the product, with the integer bits of both factors. Ties go up.
fn product(a: i32, b: i32) -> i32 {
    saturated((a * b + (1 << 14)) >> 15)
}

/// Returns `exp(x)` for `x` from -1/4 to 0, without integer bits: the Taylor polynomial around -1/8.
fn exp_of_quarter(x: i32) -> i32 {
    let x = x + (1 << 12);
    let square = product(x, x);
    let (third, fourth) = (product(square, x), product(square, square));
    let higher = rounding_shift(product(rounding_shift(fourth, 2) + third, THIRD) + square, 1);
    saturated(EXP_OF_EIGHTH + product(EXP_OF_EIGHTH, x + higher))
}

/// Returns `exp(x)`, without integer bits, for `x` of `bits` integer bits, at most 7, that is not positive.
fn exp(x: i32, bits: u32) -> i32 {
    if x == 0 {
        return ONE;
    }
    let fraction = 15 - bits;
    if bits > 5 && x < -(LEAST_EXPONENT << fraction) {
        return 0;
    }
    let quarter = 1 << (fraction - 2);
    let part = (x & (quarter - 1)) - quarter;
    let rest = part - x;
    let factors = EXPONENTIALS.iter().take(bits as usize + 2).enumerate().filter(|(at, _)| rest >> (fraction as usize - 2 + at) & 1 == 1);
    factors.fold(exp_of_quarter(part << bits), |result, (_, &factor)| product(result, factor))
}

/// Returns `2 / (1 + x)` with two integer bits, for `x` from 0 to 1 without integer bits, by three steps of Newton's method.
fn twice_inverse(x: i32) -> i32 {
    let half = (x + ONE + 1) / 2;
    (0..3).fold(INTERCEPT + product(half, SLOPE), |y, _| {
        let error = ONE_OF_TWO_BITS - product(half, y);
        wrapped(y + saturated(product(y, error) << 2))
    })
}

/// Returns `1 / (1 + exp(-x))`, without integer bits, for an i16 of `bits` integer bits, at most 6.
pub(in crate::ops) fn logistic(x: i32, bits: u32) -> i32 {
    let y = saturated(twice_inverse(exp(-x.abs(), bits)) << 1);
    match x {
        0 => 1 << 14,
        1.. => y,
        _ => ONE - y,
    }
}

/// Returns the hyperbolic tangent, without integer bits, of an i16 of `bits` integer bits, at most 6.
pub(in crate::ops) fn tanh(x: i32, bits: u32) -> i32 {
    // exp(-2|x|): the same bits with one more integer bit.
    let y = saturated((twice_inverse(exp(-x.abs(), bits + 1)) - ONE_OF_TWO_BITS) << 2);
    y * x.signum()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::runtime::program::checksum;
    use std::vec::Vec;

    /// Checksums of gemmlowp's results for all i16, from the least on, for 0 to 6 integer bits.
    const LOGISTIC: [u32; 7] = [0xadf8_8985, 0xce52_4115, 0x9fef_21e0, 0xea01_033d, 0x58c5_4c1d, 0x5d20_bc76, 0xec0e_1994];
    const TANH: [u32; 7] = [0x773e_cf13, 0x6270_9357, 0xacd7_5d6d, 0xf8de_65e0, 0xc445_9145, 0x1858_f683, 0x90b6_861a];

    #[test]
    fn same_bits_as_gemmlowp() {
        for bits in 0..7 {
            let sum = |f: fn(i32, u32) -> i32| {
                let results: Vec<u8> = (-32768..32768).flat_map(|x| (f(x, bits) as i16).to_le_bytes()).collect();
                checksum(&results)
            };
            assert_eq!([sum(logistic), sum(tanh)], [LOGISTIC[bits as usize], TANH[bits as usize]], "{bits}");
        }
    }

    #[test]
    fn near_the_real_functions() {
        for bits in 0..7 {
            for x in -32768..32768 {
                let real = f64::from(x) / f64::from(1 << (15 - bits));
                let near = |y: i32, want: f64| assert!((f64::from(y) / 32768.0 - want).abs() < 6e-4, "{bits} {x}: {y}, not {want}");
                near(logistic(x, bits), 1.0 / (1.0 + libm::exp(-real)));
                near(tanh(x, bits), libm::tanh(real));
            }
        }
    }
}
