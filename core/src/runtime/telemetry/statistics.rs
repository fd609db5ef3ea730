//! Summary statistics of a tensor's elements.

use crate::base::dtype::DType;
use crate::base::view::TensorView;

/// Summary statistics of a tensor's elements. All fields except the counts describe the finite elements, and are 0 if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Smallest finite element.
    pub min: f32,
    /// Largest finite element.
    pub max: f32,
    /// Mean of the finite elements.
    pub mean: f32,
    /// Population variance of the finite elements: the mean squared difference from their mean. Infinite if it overflows f32.
    pub variance: f32,
    /// Number of elements.
    pub count: u32,
    /// Number of elements that are infinite or NaN.
    pub non_finite: u32,
}

impl Statistics {
    /// Computes the statistics of a tensor of any element type. Elements are rounded to f32, so an f64 that overflows f32 counts as not
    /// finite. Uses one pass with Welford's recurrence, which updates the mean with each element. No sum grows so large that it loses
    /// precision.
    pub fn of(tensor: &TensorView<'_>) -> Statistics {
        let (mut found, mut squares) = (Statistics::default(), 0.0);
        for value in (0..).map_while(|index| value(tensor, index)) {
            found.count += 1;
            if !value.is_finite() {
                found.non_finite += 1;
                continue;
            }
            let finite = found.count - found.non_finite;
            if value < found.min || finite == 1 {
                found.min = value;
            }
            if value > found.max || finite == 1 {
                found.max = value;
            }
            // Halving is exact, and the difference of two halved elements cannot overflow.
            let half = value * 0.5 - found.mean * 0.5;
            found.mean += half / (finite as f32 * 0.5);
            squares += (half + half) * (value - found.mean);
            found.variance = squares / finite as f32;
        }
        found
    }
}

/// Returns element `index` as f32, or `None` if there is no such element. The conversion works on the bits, because the compiler's
/// conversion routines take more flash than all the rest of this module.
#[inline(never)]
pub fn value(tensor: &TensorView<'_>, index: usize) -> Option<f32> {
    let size = tensor.dtype().size();
    let bytes = tensor.bytes().get(index * size..)?.get(..size)?;
    let bits = bytes.iter().rev().fold(0, |bits: u64, &byte| bits << 8 | u64::from(byte));
    let [low, high] = [bits as u32, (bits >> 32) as u32];
    let (sign, magnitude) = match tensor.dtype() {
        DType::F32 => (0, low),
        DType::Bf16 => (0, low << 16),
        DType::F16 => ((low & 0x8000) << 16, widened(low & 0x7fff)),
        DType::F64 => (high & 1 << 31, rounded(low, high)),
        DType::I64 => {
            let magnitude = (bits as i64).unsigned_abs();
            let rounded = (magnitude >> 32) as u32 as f32 * 4_294_967_296.0 + magnitude as u32 as f32;
            (high & 1 << 31, rounded.to_bits())
        }
        DType::I8 => return Some((low as i8).into()),
        DType::I16 => return Some((low as i16).into()),
        DType::I32 => return Some(low as i32 as f32),
        DType::U8 => return Some(low as f32),
        DType::Bool => return Some(low.min(1) as f32),
    };
    Some(f32::from_bits(sign | magnitude))
}

/// Converts the bits of a positive f16 to those of an f32.
fn widened(bits: u32) -> u32 {
    // The bias of the exponent is 15 in f16 and 127 in f32.
    let magnitude = (f32::from_bits(bits << 13) * 5.192_297e33).to_bits();
    // Values beyond the largest f16 are infinity or NaN.
    magnitude | if magnitude >= 65536f32.to_bits() { 0xff << 23 } else { 0 }
}

/// Converts the bits of an f64, without its sign, to those of an f32. Returns 0 for values below the smallest normal f32.
fn rounded(low: u32, high: u32) -> u32 {
    let exponent = (high >> 20 & 0x7ff) as i32 - 1023 + 127;
    let digits = (high & 0xf_ffff) << 3 | low >> 29;
    match exponent {
        ..=0 => 0,
        // The highest dropped bit rounds up; the carry may reach the exponent.
        1..=254 => ((exponent as u32) << 23) + digits + (low >> 28 & 1),
        // Overflow and infinity.
        255..=1150 => 0xff << 23,
        _ => 0xff << 23 | digits,
    }
}
