//! Elementary functions of f32 without branches or calls, which the compiler vectorizes. They differ from the exact result by at most
//! 2.2 units in the last place; the test `errors` compares them with functions of f64.
//!
//! The coefficients minimize the largest error of the remainder that each function names.

/// ln 2, as the sum of a number with few bits and a small rest.
const LN_2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];

/// Returns e to the power of `x`: 2^n · e^r with |r| ≤ ln 2 / 2.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding this number rounds to an integer, and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Beyond these bounds, the result is 0 or infinite. NaN stays.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    // (e^r - 1 - r) / r²
    let p = (((0.001_381_46 * r + 0.008_368_716) * r + 0.041_668_39) * r + 0.166_665_21) * r + 0.499_999_94;
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    // In two steps, because 2^n can be outside of the range of normal numbers.
    let half = power >> 1;
    let two_to = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    ((p * r * r + r) + 1.0) * two_to(half) * two_to(power.wrapping_sub(half))
}

/// Returns the hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let z = x * x;
    // (tanh x / x - 1) / x²
    let p = (((-0.005_720_812_4 * z + 0.020_653_8) * z - 0.053_744_428) * z + 0.133_315_01) * z - 0.333_332_84;
    let near = x + x * z * p;
    let far = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

/// Returns `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Returns the natural logarithm: n · ln 2 + ln (1 + f) with 1 + f from √½ to √2.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let power = (scaled.to_bits().wrapping_sub(SQRT_HALF) as i32) >> 23;
    let n = power as f32 - if subnormal { 23.0 } else { 0.0 };
    let f = f32::from_bits(scaled.to_bits().wrapping_sub((power as u32) << 23)) - 1.0;
    // (ln (1 + f) - f + f² / 2) / f³
    let p = 0.067_466_01 * f - 0.116_756_41;
    let p = ((p * f + 0.118_881_75) * f - 0.124_055_915) * f + 0.142_195_51;
    let p = (((p * f - 0.166_679_96) * f + 0.200_021_19) * f - 0.250_000_1) * f + 0.333_333_13;
    let z = f * f;
    let y = n * LN_2[0] + (f + (n * LN_2[1] + (p * f * z - 0.5 * z)));
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f32::NAN }
}

/// Returns the error function.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let (z, size) = (x * x, x.abs());
    // erf x / x - 1
    let p = -0.000_589_271_8 * z + 0.004_974_318;
    let p = (((p * z - 0.026_754_173) * z + 0.112_814_9) * z - 0.376_124_65) * z + 0.128_379_15;
    let near = x + x * p;
    // ln (1 - erf x)
    let t = if size > 4.0 { 4.0 } else { size };
    let q = (-4.197_432_3e-7 * t - 1.574_313_5e-5) * t + 0.000_405_295_78;
    let q = ((q * t - 0.004_082_301_6) * t + 0.024_954_388) * t - 0.108_088_02;
    let q = ((q * t - 0.633_483_6) * t - 1.129_460_5) * t + 0.000_165_393_33;
    let far = (1.0 - exp(q)).copysign(x);
    let y = if size < 0.9375 { near } else { far };
    if x.is_nan() { x } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pair = (&'static str, fn(f32) -> f32, fn(f64) -> f64, f64);

    /// Returns the distance of `got` from `want`, in units in the last place of `want`. For subnormal numbers, the unit is the smallest
    /// normal one.
    fn error(got: f32, want: f64) -> f64 {
        let rounded = want as f32;
        if got == rounded || (got.is_nan() && rounded.is_nan()) {
            return 0.0;
        }
        let unit = f64::from(rounded.abs().next_up()) - f64::from(rounded.abs());
        (f64::from(got) - want).abs() / if rounded.is_normal() { unit } else { f64::from(f32::MIN_POSITIVE) }
    }

    #[test]
    fn errors() {
        let of: [Pair; 5] = [
            ("exp", exp, libm::exp, 1.0),
            ("tanh", tanh, libm::tanh, 1.4),
            ("sigmoid", sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)), 2.2),
            ("ln", ln, libm::log, 1.0),
            ("erf", erf, libm::erf, 1.4),
        ];
        for (name, fast, exact, bound) in of {
            let (mut most, mut place) = (0.0, 0.0);
            // Every 997th number, and the special ones.
            let special = [0.0, 1.0, f32::INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), 0.625, 0.9375, 88.8, 104.0];
            let numbers = (0..=u32::MAX / 997).map(|n| f32::from_bits(n * 997)).chain(special).chain(special.map(|x| -x));
            for x in numbers {
                let e = error(fast(x), exact(f64::from(x)));
                if e > most || e.is_nan() {
                    (most, place) = (e, x);
                }
            }
            assert!(most <= bound, "{name}({place:e}) = {:e}, not {:e}: {most} units", fast(place), exact(f64::from(place)));
        }
    }
}
