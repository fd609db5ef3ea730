//! What the elements of a tensor are like, in a few numbers.

use crate::base::dtype::DType;
use crate::base::view::TensorView;

/// What the elements of a tensor are like. All but the counts are about the finite ones, and 0 where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "alloc", derive(serde::Serialize, serde::Deserialize))]
pub struct Statistics {
    /// The least.
    pub min: f32,
    /// The greatest.
    pub max: f32,
    /// Their mean.
    pub mean: f32,
    /// The mean of the squares of what they differ from their mean; infinite where f32 has no number as large.
    pub variance: f32,
    /// How many elements there are.
    pub count: u32,
    /// How many of them are infinite or no numbers.
    pub non_finite: u32,
}

impl Statistics {
    /// Of any element type: elements are rounded to f32, so an f64 too large for that is not finite. In one pass, by Welford's recurrence:
    /// the mean follows each element, so no sum grows until it loses digits.
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
            // Halves are exact, and no two elements are too far apart for them.
            let half = value * 0.5 - found.mean * 0.5;
            found.mean += half / (finite as f32 * 0.5);
            squares += (half + half) * (value - found.mean);
            found.variance = squares / finite as f32;
        }
        found
    }
}

/// Element `index` in f32: from its bits, because the conversions of the compiler's library take more flash than all the rest.
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
        DType::I32 => return Some(low as i32 as f32),
        DType::U8 => return Some(low as f32),
        DType::Bool => return Some(low.min(1) as f32),
    };
    Some(f32::from_bits(sign | magnitude))
}

/// What the positive f16 with these bits is as an f32.
fn widened(bits: u32) -> u32 {
    // The exponent counts from 15 there, and from 127 here.
    let magnitude = (f32::from_bits(bits << 13) * 5.192_297e33).to_bits();
    // What would be past the largest f16 is infinite, or no number.
    magnitude | if magnitude >= 65536f32.to_bits() { 0xff << 23 } else { 0 }
}

/// What the f64 with these bits is as an f32, without its sign; 0 where that is too small for one with all its digits.
fn rounded(low: u32, high: u32) -> u32 {
    let exponent = (high >> 20 & 0x7ff) as i32 - 1023 + 127;
    let digits = (high & 0xf_ffff) << 3 | low >> 29;
    match exponent {
        ..=0 => 0,
        // The first digit that goes carries, up into the exponent.
        1..=254 => ((exponent as u32) << 23) + digits + (low >> 28 & 1),
        // Too large, and infinity.
        255..=1150 => 0xff << 23,
        _ => 0xff << 23 | digits,
    }
}
