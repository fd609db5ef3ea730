//! Tables for softmax and the logistic function, with the bits of TensorFlow Lite's reference kernels.

use crate::ops::lookup::ENTRIES;
use crate::ops::quantized::Multiplier;
use crate::ops::shared::fixed_point::{doubling_high, rounding_shift};
use alloc::vec::Vec;

/// Returns `exp(-scale · d)` for `d` from 0 on, with 31 bits after the point. The table has at most 256 elements. It ends before
/// the exponentials that are too small to change a result.
pub(in crate::ops) fn of_differences(scale: f64) -> Vec<i32> {
    // Differences get 26 bits after the point, and must be below 32.
    let real = (scale * f64::from(1 << 26)).min(f64::from(i32::MAX));
    let multiplier = Multiplier::new(real);
    let greatest = (31.0 * f64::from(1 << 26) / libm::exp2(multiplier.exponent.into())) as i32;
    let exponentials = (0..=greatest.min(255)).map(|difference| exponential(multiplier.twice(-difference)));
    // Sums have 19 bits after the point.
    exponentials.take_while(|&exponential| exponential >= 1 << 11).collect()
}

/// Returns `exp(x)`, with 31 bits after the point. `x` is above -32 and at most 0, and has 26 bits after the point.
fn exponential(x: i32) -> i32 {
    if x == 0 {
        return i32::MAX;
    }
    // The exponential of the part between -1/4 and 0, times the exponentials of the powers of two in the rest.
    const QUARTER: i32 = 1 << 24;
    let part = (x & (QUARTER - 1)) - QUARTER;
    let rest = part.wrapping_sub(x);
    const POWERS: [i32; 7] = [1_672_461_947, 1_302_514_674, 790_015_084, 290_630_308, 39_332_535, 720_401, 242];
    let powers = POWERS.iter().enumerate().filter(|(bit, _)| rest >> (24 + bit) & 1 == 1);
    powers.fold(near_zero(part << 5), |product, (_, &power)| doubling_high(product, power))
}

/// Returns `exp(x)` for an `x` from -1/4 to 0. Both have 31 bits after the point. The result is a Taylor polynomial around -1/8.
fn near_zero(x: i32) -> i32 {
    const CENTRE: i32 = 1_895_147_668;
    const THIRD: i32 = 715_827_883;
    let x = x + (1 << 28);
    let square = doubling_high(x, x);
    let (cube, fourth) = (doubling_high(square, x), doubling_high(square, square));
    let rest = rounding_shift(doubling_high(rounding_shift(fourth, 2) + cube, THIRD) + square, 1);
    CENTRE + doubling_high(CENTRE, x + rest)
}

/// Returns the table for i16: `exp(x)` from -10 to 0, then `1 / (1 + x)` from 0 to 1, with 15 bits after the point.
pub(in crate::ops) fn of_fractions() -> [i16; 2 * ENTRIES] {
    let mut table = [0; 2 * ENTRIES];
    let (exponentials, reciprocals) = table.split_at_mut(ENTRIES);
    fill(exponentials, 10.0 / 65535.0, 32767.0, libm::exp);
    fill(reciprocals, 1.0 / 65535.0, -32768.0, |x| 1.0 / (1.0 + x));
    table
}

/// Fills the table of `f`, whose results have the scale 2/65535, for x with this scale and zero point. Between two entries, the function
/// is taken to be linear. Each entry is therefore lowered by half of the error in the middle.
fn fill(table: &mut [i16], scale: f64, zero_point: f64, f: impl Fn(f64) -> f64) {
    let limits = [i16::MIN, i16::MAX].map(f64::from);
    let [first, last] = limits.map(|limit| scale * (limit - zero_point));
    let step = (last - first) / (ENTRIES - 1) as f64;
    let [low, high] = limits.map(|limit| 2.0 / 65535.0 * limit);
    let units = |x: f64| f(x) * (65536.0 / (high - low));
    for (index, entry) in table.iter_mut().enumerate() {
        let (x, next) = (first + index as f64 * step, first + (index + 1) as f64 * step);
        let value = libm::round(units(x));
        let bias = libm::round((libm::round((units(next) + value) / 2.0) - libm::round(units(x + step / 2.0))) / 2.0);
        let value = if index == ENTRIES - 1 { libm::round(units(last)) } else { value - bias };
        *entry = value.max(limits[0]).min(limits[1]) as i16;
    }
}

/// Returns the table of the logistic function of `i / 24`, as a fraction of 65536, in the bits of a u16. Each element is raised by half of
/// the error in the middle between it and the next.
pub(in crate::ops) fn of_sigmoid() -> [i16; 256] {
    let units = |at: f64| 65536.0 / (1.0 + libm::exp(-at / 24.0));
    core::array::from_fn(|at| {
        let at = at as f64;
        let error = units(at + 0.5) - (units(at) + units(at + 1.0)) / 2.0;
        // The last element is the limit.
        let value = if at == 255.0 { 65535.0 } else { libm::round(units(at) + error / 2.0) };
        value as u16 as i16
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::program::checksum;

    /// With these tables, the kernel gave the results of TensorFlow 2.21 for 35,000 elements. With those of an f32 computation, it did not.
    #[test]
    fn the_table_of_fractions_is_computed_in_f64() {
        let (exponentials, reciprocals) = (of_fractions()[..ENTRIES].to_vec(), of_fractions()[ENTRIES..].to_vec());
        assert_eq!([exponentials, reciprocals].map(|table| checksum(bytemuck::cast_slice(&table))), [0xe22a_e114, 0x80df_efdd]);
    }

    #[test]
    fn the_table_of_the_logistic_function_is_that_of_tensorflow() {
        assert_eq!(checksum(bytemuck::cast_slice(&of_sigmoid())), 0x502c_c83e);
    }

    #[test]
    fn near_the_real_exponentials() {
        for scale in [1e-6, 0.01, 0.1, 0.3, 1.0, 13.0, 1e9] {
            let table = of_differences(scale);
            for (difference, &exponential) in table.iter().enumerate() {
                let want = libm::exp(-scale * difference as f64);
                assert!((f64::from(exponential) / f64::from(1u32 << 31) - want).abs() < 1e-6, "{scale} {difference}");
            }
            assert!(table.len() == 256 || libm::exp(-scale * table.len() as f64) < 1e-6);
        }
        assert_eq!(of_differences(0.0).len(), 256);
    }
}
