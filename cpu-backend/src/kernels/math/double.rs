//! Elementary functions of f64. They differ from those of `libm` by at most 4 units in the last place.

/// ln 2, as the sum of a number with few bits and a small rest.
const LN_2: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];

/// Returns e to the power of `x`.
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    let [rest, first, second] = power(x);
    (rest + 1.0) * first * second
}

/// Returns `e^x - 1`.
#[inline(always)]
pub fn expm1(x: f64) -> f64 {
    let [rest, first, second] = power(x);
    let scale = first * second;
    let y = rest * scale + (scale - 1.0);
    // The scale alone can be infinite where the result is not.
    if x > 709.0 {
        (rest + 1.0) * first * second
    } else if x == 0.0 {
        x
    } else {
        y
    }
}

/// Returns `e^r - 1` with |r| ≤ ln 2 / 2, and two powers of 2. e to the power of `x` is the product of the powers and e^r.
#[inline(always)]
fn power(x: f64) -> [f64; 3] {
    // Adding this number rounds to an integer, and leaves it in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // Beyond these bounds, the result is 0 or infinite. NaN stays.
    let x = if x < -746.0 { -746.0 } else { x };
    let x = if x > 710.0 { 710.0 } else { x };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    // (e^r - 1 - r) / r²
    let p = (2.091_467_937_658_393_5e-9 * r + 2.510_520_637_395_701e-8) * r + 2.755_727_366_134_863_7e-7;
    let p = ((p * r + 2.755_725_542_574_643_5e-6) * r + 2.480_158_732_553_336_3e-5) * r + 1.984_126_987_480_049_3e-4;
    let p = ((p * r + 1.388_888_888_888_375_2e-3) * r + 8.333_333_333_326_141e-3) * r + 4.166_666_666_666_667e-2;
    let p = (p * r + 0.166_666_666_666_666_7) * r + 0.5;
    let power = (shifted.to_bits() as i64).wrapping_sub(ROUND.to_bits() as i64);
    // In two steps, because 2^n can be outside of the range of normal numbers.
    let half = power >> 1;
    let two_to = |n: i64| f64::from_bits((n.wrapping_add(1023) as u64) << 52);
    [p * r * r + r, two_to(half), two_to(power.wrapping_sub(half))]
}

/// Returns the hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f64) -> f64 {
    let size = x.abs();
    let e = expm1(if size > 20.0 { 40.0 } else { 2.0 * size });
    (e / (e + 2.0)).copysign(x)
}

/// Returns `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + exp(-x))
}

/// Returns `ln (1 + e^x)`.
#[inline(always)]
pub fn softplus(x: f64) -> f64 {
    let power = exp(-x.abs());
    let sum = 1.0 + power;
    // The last term is the error that the sum makes.
    (if x < 0.0 { 0.0 } else { x }) + (ln(sum) + (power - (sum - 1.0)) / sum)
}

/// Returns `ln (1 + x)`.
#[inline(always)]
pub fn log1p(x: f64) -> f64 {
    let sum = 1.0 + x;
    // The factor is the error that the sum makes.
    let y = ln(sum) * (x / (sum - 1.0));
    if (sum == 1.0) | (x == f64::INFINITY) { x } else { y }
}

/// Returns the natural logarithm: n · ln 2 + ln (1 + f) with 1 + f from √½ to √2.
#[inline(always)]
pub fn ln(x: f64) -> f64 {
    // A number with this exponent has an integer in its low bits.
    const INTEGER: f64 = 4_503_599_627_370_496.0;
    let subnormal = x < f64::MIN_POSITIVE;
    let bits = (if subnormal { x * 18_014_398_509_481_984.0 } else { x }).to_bits();
    let exponent = f64::from_bits(INTEGER.to_bits() | bits >> 52) - INTEGER;
    let digits = f64::from_bits(bits & !0 >> 12 | 1.0f64.to_bits());
    let large = digits > std::f64::consts::SQRT_2;
    let n = exponent - if subnormal { 1077.0 } else { 1023.0 } + if large { 1.0 } else { 0.0 };
    let f = if large { 0.5 * digits } else { digits } - 1.0;
    // With s = f / (2 + f), ln (1 + f) = 2 · s + s · z · p, where z = s².
    let s = f / (2.0 + f);
    let z = s * s;
    let p = (0.146_436_286_019_097_97 * z + 0.153_295_007_542_041_78) * z + 0.181_829_566_080_634_58;
    let p = (((p * z + 0.222_222_101_992_642_1) * z + 0.285_714_286_317_643_34) * z + 0.399_999_999_998_866_15) * z;
    let p = p + 0.666_666_666_666_667;
    let half = 0.5 * f * f;
    let y = n * LN_2[0] - ((half - (s * (half + z * p) + n * LN_2[1])) - f);
    let y = if x == f64::INFINITY { x } else { y };
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::cases;
    use super::*;

    type Pair = (&'static str, fn(f64) -> f64, fn(f64) -> f64, f64);

    /// Returns the distance of two numbers, in units in the last place. For subnormal numbers, the unit is the smallest normal one.
    fn error(got: f64, want: f64) -> f64 {
        if got == 0.0 && want == 0.0 && got.is_sign_negative() != want.is_sign_negative() {
            return f64::INFINITY;
        }
        if got == want || (got.is_nan() && want.is_nan()) {
            return 0.0;
        }
        let unit = want.abs().next_up() - want.abs();
        (got - want).abs() / if want.is_normal() { unit } else { f64::MIN_POSITIVE }
    }

    #[test]
    fn errors() {
        let of: [Pair; 7] = [
            ("exp", exp, libm::exp, 1.0),
            ("expm1", expm1, libm::expm1, 3.0),
            ("tanh", tanh, libm::tanh, 4.0),
            ("sigmoid", sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)), 2.0),
            ("ln", ln, libm::log, 1.0),
            ("log1p", log1p, libm::log1p, 3.0),
            ("softplus", softplus, |x| x.max(0.0) + libm::log1p(libm::exp(-x.abs())), 3.0),
        ];
        for (name, fast, exact, bound) in of {
            let positive = [0.0, 1.0, 2.0, 0.5, f64::MIN_POSITIVE, 5e-324, 709.0, 709.5, 710.0, f64::MAX, f64::INFINITY, f64::NAN];
            let any = (0..cases(1 << 21)).map(|n| f64::from_bits(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            let near = (0..cases(1 << 21)).map(|n| (n as f64 / cases(1 << 21) as f64 - 0.5) * 40.0);
            let numbers = any.chain(near).chain(positive).chain(positive.map(|x| -x));
            let worst = numbers.map(|x| (error(fast(x), exact(x)), x)).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
            assert!(worst.0 <= bound, "{name}({}) is wrong by {} units", worst.1, worst.0);
        }
    }
}
