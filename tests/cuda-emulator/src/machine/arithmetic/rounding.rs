//! Directed rounding: the result to the nearest, corrected by the sign of its error.

/// How a result is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

/// Moves a result by one step, if its error says so. `error` has the sign of the exact value less `rounded`.
macro_rules! correct {
    ($rounded:expr, $error:expr, $rounding:expr) => {{
        let (rounded, error) = ($rounded, $error);
        if error == 0.0 || rounded.is_nan() {
            rounded
        } else {
            match $rounding {
                Rounding::Nearest => rounded,
                Rounding::Down => {
                    if error < 0.0 {
                        rounded.next_down()
                    } else {
                        rounded
                    }
                }
                Rounding::Up => {
                    if error > 0.0 {
                        rounded.next_up()
                    } else {
                        rounded
                    }
                }
                Rounding::Zero if rounded > 0.0 && error < 0.0 => rounded.next_down(),
                Rounding::Zero if rounded < 0.0 && error > 0.0 => rounded.next_up(),
                Rounding::Zero => rounded,
            }
        }
    }};
}

/// `value + rest` as an f32, where `rest` is too small to change `value`'s bits.
pub fn narrowed(value: f64, rest: f64, rounding: Rounding) -> f32 {
    let rounded = value as f32;
    if value.is_infinite() {
        return rounded;
    }
    let error = if rounded.is_infinite() { -f64::from(rounded.signum()) } else { value - f64::from(rounded) };
    correct!(rounded, if error == 0.0 { rest } else { error }, rounding)
}

/// A sum and its error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let from_b = sum - a;
    (sum, (a - (sum - from_b)) + (b - from_b))
}

/// The zero to add to a product, so that it keeps its sign.
fn neutral(rounding: Rounding) -> f64 {
    if rounding == Rounding::Down { 0.0 } else { -0.0 }
}

/// The sign of a sum of zero, for rounding down.
fn signed_zero(sum: f64, a: f64, b: f64, rounding: Rounding) -> f64 {
    if sum == 0.0 && rounding == Rounding::Down && (a.is_sign_negative() || b.is_sign_negative()) { -0.0 } else { sum }
}

/// `a * b + c`.
pub fn fma32(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let (sum, error) = two_sum(product, c);
    narrowed(signed_zero(sum, product, c, rounding), if error.is_nan() { 0.0 } else { error }, rounding)
}

/// `a + b`.
pub fn add32(a: f32, b: f32, rounding: Rounding) -> f32 {
    fma32(a, 1.0, b, rounding)
}

/// `a * b`.
pub fn mul32(a: f32, b: f32, rounding: Rounding) -> f32 {
    fma32(a, b, neutral(rounding) as f32, rounding)
}

/// `a / b`.
pub fn div32(a: f32, b: f32, rounding: Rounding) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let quotient = a / b;
    let rest = quotient.mul_add(-b, a) * b.signum();
    narrowed(quotient, if rest.is_nan() { 0.0 } else { rest }, rounding)
}

/// The square root.
pub fn sqrt32(a: f32, rounding: Rounding) -> f32 {
    let a = f64::from(a);
    let root = a.sqrt();
    let rest = root.mul_add(-root, a);
    narrowed(root, if rest.is_nan() { 0.0 } else { rest }, rounding)
}

/// `a * b + c`. Results that overflow, and products below the normal range, may be rounded to the nearest.
pub fn fma64(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    let rounded = a.mul_add(b, c);
    let product = a * b;
    let (sum, error) = two_sum(product, c);
    let rest = (sum - rounded) + (error + a.mul_add(b, -product));
    let rounded = signed_zero(rounded, product, c, rounding);
    correct!(rounded, if rest.is_nan() { 0.0 } else { rest }, rounding)
}

/// `a + b`.
pub fn add64(a: f64, b: f64, rounding: Rounding) -> f64 {
    fma64(a, 1.0, b, rounding)
}

/// `a * b`.
pub fn mul64(a: f64, b: f64, rounding: Rounding) -> f64 {
    fma64(a, b, neutral(rounding), rounding)
}

/// `a / b`.
pub fn div64(a: f64, b: f64, rounding: Rounding) -> f64 {
    let quotient = a / b;
    let rest = quotient.mul_add(-b, a) * b.signum();
    correct!(quotient, if rest.is_nan() { 0.0 } else { rest }, rounding)
}

/// The square root.
pub fn sqrt64(a: f64, rounding: Rounding) -> f64 {
    let root = a.sqrt();
    let rest = root.mul_add(-root, a);
    correct!(root, if rest.is_nan() { 0.0 } else { rest }, rounding)
}

/// An integer as an f32.
pub fn integer32(value: i128, rounding: Rounding) -> f32 {
    let wide = value as f64;
    narrowed(wide, (value - wide as i128) as f64, rounding)
}

/// An integer as an f64.
pub fn integer64(value: i128, rounding: Rounding) -> f64 {
    let wide = value as f64;
    correct!(wide, (value - wide as i128) as f64, rounding)
}

/// `a - b`.
pub fn sub32(a: f32, b: f32, rounding: Rounding) -> f32 {
    add32(a, -b, rounding)
}

/// `a - b`.
pub fn sub64(a: f64, b: f64, rounding: Rounding) -> f64 {
    add64(a, -b, rounding)
}

/// `1 / a`.
pub fn rcp32(a: f32, rounding: Rounding) -> f32 {
    div32(1.0, a, rounding)
}

/// `1 / a`.
pub fn rcp64(a: f64, rounding: Rounding) -> f64 {
    div64(1.0, a, rounding)
}
