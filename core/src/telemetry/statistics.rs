//! What the elements of a tensor are like, in a few numbers.

use crate::dtype::DType;
use crate::view::TensorView;
use half::f16;

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
    /// The mean of the squares of what they differ from their mean.
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
            let apart = value - found.mean;
            found.mean += apart / finite as f32;
            squares += apart * (value - found.mean);
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
    Some(match tensor.dtype() {
        DType::F32 => f32::from_bits(low),
        DType::F64 => rounded(low, high),
        DType::F16 => f16::from_bits(low as u16).to_f32(),
        DType::Bf16 => f32::from_bits(low << 16),
        DType::I8 => (low as i8).into(),
        DType::U8 => low as f32,
        DType::I32 => low as i32 as f32,
        DType::I64 => high as i32 as f32 * 4_294_967_296.0 + low as f32,
        DType::Bool => f32::from(low != 0),
    })
}

/// The f64 with these bits; 0 where that is too small for an f32 with all its digits.
fn rounded(low: u32, high: u32) -> f32 {
    let (sign, exponent) = (high & 1 << 31, (high >> 20 & 0x7ff) as i32 - 1023 + 127);
    // The first digit that goes carries, up into the exponent.
    let digits = ((high & 0xf_ffff) << 3 | low >> 29) + (low >> 28 & 1);
    let magnitude = match exponent {
        ..=0 => 0,
        1..=254 => ((exponent as u32) << 23) + digits,
        _ => 0xff << 23,
    };
    f32::from_bits(sign | magnitude)
}
