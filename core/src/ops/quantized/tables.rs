//! Tables of functions of int8 and int16 tensors, with the bits of TensorFlow Lite's reference kernels.
//!
//! A table for int8 has a result for each integer, in the order from -128 on. One for int16 has a result for every 128th integer.
//! [`Tensor::lookup`](crate::Tensor::lookup) applies both.

use crate::base::quantization::Quantization;
use crate::ops::lookup::ENTRIES;
use crate::ops::quantized::Multiplier;
use crate::ops::shared::fixed_point::{doubling_high, inverse_square_root, rounding_shift};

/// Table of a function from i8 to i8.
pub type Table = [i8; 256];
/// Table of a function from i16 to i16.
pub type WideTable = [i16; ENTRIES];

fn table(entry: impl Fn(i8) -> i32) -> Table {
    core::array::from_fn(|at| entry((at as u8 ^ 128) as i8).clamp(i8::MIN.into(), i8::MAX.into()) as i8)
}

/// Returns the table of the real function `f`, from integers of the quantization `x` to integers of `y`.
///
/// `f` is computed in f32, as in TensorFlow Lite. A result in the middle between two integers becomes the one that is farther from 0.
pub fn function(x: Quantization, y: Quantization, f: impl Fn(f32) -> f32) -> Table {
    let inverse = 1.0 / y.scale;
    table(|q| {
        let real = x.scale * i32::from(q).wrapping_sub(x.zero_point) as f32;
        (libm::roundf(f(real) * inverse) + y.zero_point as f32) as i32
    })
}

/// Returns the table of the real function `f`, from integers of the scale `x` to integers of the scale `y`. Zero points are 0.
///
/// Between two entries, the function is taken to be linear. Each entry is therefore lowered by half of the error in the middle.
/// Positions and entries are f32, as in TensorFlow Lite.
pub fn wide_function(x: f32, y: f32, f: impl Fn(f32) -> f32) -> WideTable {
    let limits = [i16::MIN, i16::MAX].map(f32::from);
    let ([first, last], [low, high]) = (limits.map(|limit| x * limit), limits.map(|limit| y * limit));
    let (step, inverse) = ((last - first) / (ENTRIES - 1) as f32, 65536.0 / (high - low));
    core::array::from_fn(|at| {
        let entry = if at == ENTRIES - 1 {
            libm::roundf(f(last) * inverse)
        } else {
            let from = first + at as f32 * step;
            let (value, next) = (f(from), f(first + (at + 1) as f32 * step));
            let value = libm::roundf(value * inverse);
            let middle = libm::roundf((next * inverse + value) / 2.0);
            value - libm::roundf((middle - libm::roundf(f(from + step / 2.0) * inverse)) / 2.0)
        };
        entry.max(limits[0]).min(limits[1]) as i16
    })
}

/// Returns `exp(x)`.
pub fn exp(x: f32) -> f32 {
    libm::exp(x.into()) as f32
}

/// Returns the natural logarithm of `x`, and `least` if `x` is not positive: the smallest number of the result's type.
pub fn log(x: f32, least: f32) -> f32 {
    if x <= 0.0 { least } else { libm::log(x.into()) as f32 }
}

/// Returns `x` if it is not negative, and else `exp(x) - 1`.
pub fn elu(x: f32) -> f32 {
    if x < 0.0 { libm::expm1(x.into()) as f32 } else { x }
}

/// Returns `x` times the normal distribution's probability of a number below `x`. With `approximate`, returns Keras's approximation by a
/// hyperbolic tangent.
pub fn gelu(x: f32, approximate: bool) -> f32 {
    const SQRT_HALF: f32 = core::f32::consts::FRAC_1_SQRT_2;
    const SQRT_2_OVER_PI: f32 = core::f32::consts::FRAC_2_SQRT_PI * SQRT_HALF;
    if approximate {
        let inner = SQRT_2_OVER_PI * (x + 0.044715 * x * x * x);
        0.5 * x * (1.0 + libm::tanh(inner.into()) as f32)
    } else {
        0.5 * x * libm::erfcf(x * -SQRT_HALF)
    }
}

/// Returns the real number of each of 256 integers from `first` on, of the quantization `x`, with 8 bits after the point. TensorFlow Lite
/// compares these.
pub fn reals(first: i32, x: Quantization) -> [i32; 256] {
    let scale = Multiplier::new(x.scale.into());
    core::array::from_fn(|at| scale.twice((at as i32).wrapping_add(first).wrapping_sub(x.zero_point).wrapping_shl(8)))
}

/// Returns the table of the absolute value.
pub fn abs(x: Quantization, y: Quantization) -> Table {
    let ratio = Multiplier::new((x.scale / y.scale).into());
    table(|q| {
        let size = i32::from(q).wrapping_sub(x.zero_point).wrapping_abs();
        let scaled = if x.scale == y.scale { size } else { ratio.twice(size) };
        scaled.wrapping_add(y.zero_point)
    })
}

/// Returns the table of the square root. Results are rounded down, as in TensorFlow Lite. TensorFlow Lite refuses negative numbers; the
/// table has 0 for them.
pub fn sqrt(x: Quantization, y: Quantization) -> Table {
    table(|q| {
        let real = x.scale * i32::from(q).wrapping_sub(x.zero_point) as f32;
        ((libm::sqrtf(real.max(0.0)) / y.scale) as i32).wrapping_add(y.zero_point)
    })
}

/// Returns the table of `1 / √x`. For 0, it has the greatest integer. TensorFlow Lite refuses negative numbers; the table has the greatest
/// integer for them too.
pub fn rsqrt(x: Quantization, y: Quantization) -> Table {
    /// Bits of an intermediate result after the point.
    const SHIFT: i32 = 20;
    let ratio = Multiplier::new(1.0 / f64::from(libm::sqrtf(x.scale) * y.scale));
    let ratio = Multiplier { exponent: (ratio.exponent - SHIFT).max(-31), ..ratio };
    table(|q| {
        let number = i32::from(q).wrapping_sub(x.zero_point);
        if number <= 0 {
            return i8::MAX.into();
        }
        let root = inverse_square_root(number);
        let root = Multiplier { exponent: root.exponent + SHIFT, ..root }.twice(1);
        ratio.twice(root).wrapping_add(y.zero_point)
    })
}

/// Returns the table of the logistic function `1 / (1 + exp(-x))`. TensorFlow Lite's LOGISTIC has the scale 1/256 and the zero point -128
/// in `y`.
pub fn sigmoid(x: Quantization, y: Quantization) -> Table {
    function(x, y, |x| 1.0 / (1.0 + libm::exp(f64::from(-x)) as f32))
}

/// Returns the table of the hyperbolic tangent. TensorFlow Lite's TANH has the scale 1/128 and the zero point 0 in `y`.
pub fn tanh(x: Quantization, y: Quantization) -> Table {
    function(x, y, |x| libm::tanh(x.into()) as f32)
}

/// Returns the table of `x` where it is not negative, and of `alpha · x` elsewhere. `alpha` can have any sign. This is TensorFlow Lite's
/// LEAKY_RELU, which rounds twice.
pub fn leaky_relu(x: Quantization, y: Quantization, alpha: f32) -> Table {
    let slope = x.scale * alpha / y.scale;
    let (positive, negative) = (Multiplier::new((x.scale / y.scale).into()), Multiplier::new(slope.abs().into()));
    let value = if slope < 0.0 { -negative.value } else { negative.value };
    table(|q| {
        let q = i32::from(q).wrapping_sub(x.zero_point);
        let product = if q >= 0 {
            positive.twice(q)
        } else {
            let shifted = q.wrapping_shl(negative.exponent.max(0) as u32);
            rounding_shift(doubling_high(shifted, value), (-negative.exponent).max(0) as u32)
        };
        product.wrapping_add(y.zero_point)
    })
}

/// Returns the table of `x · min(max(x + 3, 0), 6) / 6`. This is TensorFlow Lite's HARD_SWISH, which computes with 16 bits. The scale of
/// `y` must be greater than 1/128 of that of `x`.
pub fn hard_swish(x: Quantization, y: Quantization) -> Table {
    // The element has 7 more bits than q. `ramp` makes 32768 of the element that stands for 3.
    let scale = x.scale * (1.0 / 128.0);
    let result = Multiplier::new((scale / y.scale).into());
    let ramp = Multiplier::new((scale / (3.0 / 32768.0)).into());
    table(|q| {
        let element = i32::from(q).wrapping_sub(x.zero_point).wrapping_shl(7);
        let above = (saturated(element, ramp.exponent - 1).wrapping_mul(half(ramp)).wrapping_add(1 << 14)) >> 15;
        let above = saturated(above.clamp(i16::MIN.into(), i16::MAX.into()), ramp.exponent.min(1));
        let factor = (rounding_shift(above, (-ramp.exponent).max(0) as u32) + (1 << 15)) >> 1;
        let scaled = element.wrapping_mul(half(result)).wrapping_add(1 << 14) >> 15;
        rounding_shift(factor.wrapping_mul(scaled) / (1 << 15), (-result.exponent).max(0) as u32).wrapping_add(y.zero_point)
    })
}

/// Returns the upper 16 bits of the mantissa, rounded.
fn half(multiplier: Multiplier) -> i32 {
    (multiplier.value >> 16) + (multiplier.value >> 15 & i32::from(multiplier.value < 0x7fff_0000))
}

/// Returns `x`, of at most 16 bits, shifted left, or the nearest number of 16 bits. Without a positive shift, returns `x`.
fn saturated(x: i32, shift: i32) -> i32 {
    if shift <= 0 { x } else { (i64::from(x) << shift).clamp(i16::MIN.into(), i16::MAX.into()) as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::program::checksum;

    /// Scales and zero points of x and y, the slope of leaky ReLU, and the checksums of TensorFlow 2.21's tables: LOGISTIC and TANH with
    /// their fixed results, LEAKY_RELU and HARD_SWISH. The reference kernels gave them for all 256 integers.
    #[allow(clippy::type_complexity)]
    #[rustfmt::skip]
    const TENSORFLOW: [((f32, i32), (f32, i32), f32, [u32; 4]); 8] = [
        ((0.25974563, 118), (0.25561374, -55), -0.5, [0xa1e5_2dbb, 0x9193_195b, 0xe21b_06a0, 0xb08c_5717]),
        ((0.11894993, 71), (0.16533971, 109), 1.5, [0x9811_08b6, 0x6c5b_8e8f, 0xd543_22c8, 0x0b85_df42]),
        ((0.33122474, -125), (0.2545205, -122), -0.5, [0xa078_56dd, 0xb289_f081, 0x5458_fa94, 0x7405_d6fb]),
        ((0.0043988507, -4), (0.00091194274, -91), 1.5, [0x04e9_9c4c, 0x1ac6_e623, 0x228e_bd68, 0x32ff_a721]),
        ((0.46053743, -39), (0.28105888, 72), 1.5, [0xe5dc_4382, 0x9e1b_c190, 0xd494_647f, 0xe321_1c39]),
        ((0.014394559, 52), (0.016740484, 119), 0.25, [0xe825_62f1, 0x053f_3957, 0x49e1_6078, 0x5f17_4ac1]),
        ((0.1666096, 86), (0.24693377, 124), 0.1, [0x2c97_2555, 0xba10_b6bf, 0x8503_fe63, 0x4b1f_18ef]),
        ((0.322242, 98), (0.3611266, 20), -0.5, [0x420e_530e, 0x2e1e_a55f, 0x3258_91da, 0xc067_05e1]),
    ];

    #[test]
    fn tables_are_those_of_tensorflow() {
        let quantization = |(scale, zero_point)| Quantization { scale, zero_point };
        for (x, y, alpha, want) in TENSORFLOW {
            let (x, y) = (quantization(x), quantization(y));
            let logistic = sigmoid(x, quantization((1.0 / 256.0, -128)));
            let tables = [logistic, tanh(x, quantization((1.0 / 128.0, 0))), leaky_relu(x, y, alpha), hard_swish(x, y)];
            assert_eq!(tables.map(|table| checksum(bytemuck::cast_slice(&table))), want, "{x:?} {y:?}");
        }
    }

    #[test]
    fn the_order_and_the_limits_of_a_table() {
        let one = Quantization { scale: 1.0, zero_point: 0 };
        let table = function(one, one, |x| if x == 100.0 { f32::INFINITY } else { x + 0.5 });
        assert_eq!([table[0], table[127], table[128], table[228], table[255]], [-128, -1, 1, 127, 127]);
        for scale in [0.0, f32::MIN_POSITIVE, f32::MAX, f32::NAN] {
            for zero_point in [i32::MIN, i32::MAX] {
                let odd = Quantization { scale, zero_point };
                for (x, y) in [(odd, odd), (odd, one), (one, odd)] {
                    let _ = (sigmoid(x, y), tanh(x, y), leaky_relu(x, y, f32::NAN), leaky_relu(x, y, -1.0), hard_swish(x, y));
                    let _ = (abs(x, y), sqrt(x, y), rsqrt(x, y), reals(zero_point, x), wide_function(x.scale, y.scale, exp));
                }
            }
        }
    }
}
