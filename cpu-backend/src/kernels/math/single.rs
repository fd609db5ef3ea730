//! Elementary functions of f32. They differ from the exact result by at most 2.6 units in the last place; the test `errors` compares them
//! with functions of f64.

use super::double;

/// ln 2, as the sum of a number with few bits and a small rest.
const LN_2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];

/// Returns e to the power of `x`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let [rest, first, second] = power(x);
    (rest + 1.0) * first * second
}

/// Returns `e^x - 1`.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let [rest, first, second] = power(x);
    let scale = first * second;
    let y = rest * scale + (scale - 1.0);
    // The scale alone can be infinite where the result is not.
    if x > 88.0 {
        (rest + 1.0) * first * second
    } else if x == 0.0 {
        x
    } else {
        y
    }
}

/// Returns `e^r - 1` with |r| ≤ ln 2 / 2, and two powers of 2. e to the power of `x` is the product of the powers and e^r.
#[inline(always)]
fn power(x: f32) -> [f32; 3] {
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
    [p * r * r + r, two_to(half), two_to(power.wrapping_sub(half))]
}

/// Returns the hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let z = x * x;
    // (tanh x / x - 1) / x²
    let p = (((-0.005_720_812_4 * z + 0.020_653_8) * z - 0.053_744_428) * z + 0.133_315_01) * z - 0.333_332_84;
    let near = x + x * z * p;
    let far = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { near.copysign(x) } else { far }
}

/// Returns `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Returns `ln (1 + e^x)`.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let power = exp(-x.abs());
    let sum = 1.0 + power;
    // The last term is the error that the sum makes.
    (if x < 0.0 { 0.0 } else { x }) + (ln(sum) + (power - (sum - 1.0)) / sum)
}

/// Returns `ln (1 + x)`.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let sum = 1.0 + x;
    // The factor is the error that the sum makes.
    let y = ln(sum) * (x / (sum - 1.0));
    if (sum == 1.0) | (x == f32::INFINITY) { x } else { y }
}

/// Returns `x` to the power of `y`, like `powf`.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let size = double::exp(f64::from(y) * double::ln(f64::from(x.abs()))) as f32;
    let half = y * 0.5;
    let (whole, odd) = (y.floor() == y, half.floor() != half);
    let signed = if odd & whole { size.copysign(x) } else { size };
    let signed = if (x < 0.0) & !whole & (x != f32::NEG_INFINITY) { f32::NAN } else { signed };
    let is_one = (x == 1.0) | (y == 0.0) | (x == -1.0) & (y.abs() == f32::INFINITY);
    if is_one { 1.0 } else { signed }
}

/// Largest argument of [`sin`] and [`cos`].
pub const MOST_RADIANS: f32 = 1e6;

/// Returns the sine of `x`, at most [`MOST_RADIANS`].
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    sine(x, 0)
}

/// Returns the cosine of `x`, at most [`MOST_RADIANS`].
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    sine(x, 1)
}

/// Returns the sine of `x` and some quarters of a turn.
#[inline(always)]
fn sine(x: f32, quarters: u32) -> f32 {
    // As in `exp`.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // A quarter of a turn, as the sum of a number with few bits and a small rest.
    const QUARTER: [f64; 2] = [1.570_796_326_734_125_6, 6.077_100_506_506_192e-11];
    let shifted = f64::from(x) * std::f64::consts::FRAC_2_PI + ROUND;
    let n = shifted - ROUND;
    let r = ((f64::from(x) - n * QUARTER[0]) - n * QUARTER[1]) as f32;
    let quarter = (shifted.to_bits() as u32).wrapping_add(quarters);
    let z = r * r;
    // (sin r / r - 1) / r² and (cos r - 1 + r² / 2) / r⁴
    let s = (-0.000_195_853_73 * z + 0.008_332_737) * z - 0.166_666_64;
    let c = (2.454_542e-5 * z - 0.001_388_829_1) * z + 0.041_666_664;
    // The sign is that of r, also for -0.
    let y = if quarter & 1 == 0 { (r + r * z * s).copysign(r) } else { (1.0 - 0.5 * z) + z * z * c };
    f32::from_bits(y.to_bits() ^ (quarter & 2) << 30)
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
    use super::super::super::testing::cases;
    use super::*;

    type Pair = (&'static str, fn(f32) -> f32, fn(f64) -> f64, f64);

    /// Returns the distance of `got` from `want`, in units in the last place of `want`. For subnormal numbers, the unit is the smallest
    /// normal one.
    fn error(got: f32, want: f64) -> f64 {
        let rounded = want as f32;
        if got == 0.0 && rounded == 0.0 && got.is_sign_negative() != rounded.is_sign_negative() {
            return f64::INFINITY;
        }
        if got == rounded || (got.is_nan() && rounded.is_nan()) {
            return 0.0;
        }
        let unit = f64::from(rounded.abs().next_up()) - f64::from(rounded.abs());
        (f64::from(got) - want).abs() / if rounded.is_normal() { unit } else { f64::from(f32::MIN_POSITIVE) }
    }

    /// The numbers for which the functions of the test `errors` were farthest from the exact result, of nearly all numbers.
    const WORST: [f32; 10] =
        [37.77723, 0.382_316_65, 0.631_044_2, -16.635704, 0.706_991_5, 0.015_624_939, -2.03031, 0.916_823_1, 27.479837, 16231.888];

    fn special() -> impl Iterator<Item = f32> {
        let positive = [0.0, 1.0, 2.0, 3.0, 0.5, f32::MIN_POSITIVE, 1e-45, 88.0, 88.5, 1e30, f32::MAX, f32::INFINITY, f32::NAN];
        positive.into_iter().chain(positive.map(|x| -x))
    }

    #[test]
    fn errors() {
        let of: [Pair; 10] = [
            ("exp", exp, libm::exp, 1.0),
            ("expm1", expm1, libm::expm1, 1.6),
            ("tanh", tanh, libm::tanh, 1.4),
            ("sigmoid", sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)), 2.2),
            ("ln", ln, libm::log, 1.0),
            ("log1p", log1p, libm::log1p, 2.6),
            ("softplus", softplus, |x| x.max(0.0) + libm::log1p(libm::exp(-x.abs())), 2.6),
            ("erf", erf, libm::erf, 1.4),
            ("sin", sin, libm::sin, 1.6),
            ("cos", cos, libm::cos, 1.6),
        ];
        for (name, fast, exact, bound) in of {
            let step = 997 * (4 / cases(4)) as u32;
            let numbers = (0..=u32::MAX / step).map(|n| f32::from_bits(n * step)).chain(special());
            let numbers = numbers.filter(|x| !matches!(name, "sin" | "cos") || x.abs() <= MOST_RADIANS);
            let worst = numbers.map(|x| (error(fast(x), exact(f64::from(x))), x)).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
            assert!(worst.0 <= bound, "{name}({}) is wrong by {} units", worst.1, worst.0);
            for x in WORST {
                let error = error(fast(x), exact(x.into()));
                assert!(error <= 2.6, "{name}({x}) is wrong by {error} units");
            }
        }
    }

    #[test]
    fn powers() {
        let numbers = || (0..cases(2000) as u32).map(|n| f32::from_bits(n.wrapping_mul(2_654_435_761))).chain(special());
        for x in numbers() {
            for y in numbers() {
                let (got, want) = (pow(x, y), libm::pow(x.into(), y.into()));
                assert!(error(got, want) <= 0.6, "{x} to the power of {y} is {got}, not {want}");
                assert!(want.is_nan() || got.is_sign_negative() == want.is_sign_negative(), "{x} to the power of {y} is {got}, not {want}");
            }
        }
    }
}
