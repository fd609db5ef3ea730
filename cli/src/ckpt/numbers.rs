//! Elements of tensors as numbers.

use super::source::Item;
use gradlet::checkpoint::bundle::dtype_name;
use gradlet::io::proto::DataType;

impl Item {
    /// Returns the element type and shape of the tensor, such as `float32[3, 2]`.
    pub fn describe(&self) -> String {
        format!("{}{:?}", dtype_name(self.dtype), self.dims)
    }
}

/// Calls `take` with every element and returns true, if the element type is a type of real numbers. Otherwise returns false.
pub fn each(dtype: DataType, bytes: &[u8], mut take: impl FnMut(f64)) -> bool {
    macro_rules! numbers {
        ($($variant:ident => $ty:ty, $convert:expr);* $(;)?) => {
            match dtype {
                $(DataType::$variant => {
                    let convert: fn($ty) -> f64 = $convert;
                    bytes.as_chunks::<{ size_of::<$ty>() }>().0.iter().for_each(|bytes| take(convert(<$ty>::from_le_bytes(*bytes))));
                    true
                })*
                _ => false,
            }
        };
    }
    numbers! {
        DtFloat => f32, f64::from;
        DtDouble => f64, |value| value;
        DtHalf => u16, half;
        DtBfloat16 => u16, |bits| f64::from(f32::from_bits(u32::from(bits) << 16));
        DtInt8 => i8, f64::from;
        DtInt16 => i16, f64::from;
        DtInt32 => i32, f64::from;
        DtInt64 => i64, |value| value as f64;
        DtUint8 => u8, f64::from;
        DtUint16 => u16, f64::from;
        DtUint32 => u32, f64::from;
        DtUint64 => u64, |value| value as f64;
        DtBool => u8, |value| f64::from(u8::from(value != 0));
    }
}

/// Converts the bits of an IEEE 754 binary16 number to an f64.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Statistics of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// Number of NaNs. The other statistics exclude them.
    pub nan: u64,
}

/// Computes the statistics of elements. Returns `None` if they are not real numbers, or if there are none besides NaN.
pub fn statistics(dtype: DataType, bytes: &[u8]) -> Option<Statistics> {
    let (mut min, mut max, mut sum, mut count, mut nan) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0u64, 0);
    let real = each(dtype, bytes, |value| {
        if value.is_nan() {
            nan += 1;
            return;
        }
        (min, max, sum, count) = (min.min(value), max.max(value), sum + value, count + 1);
    });
    (real && count > 0).then(|| Statistics { min, max, mean: sum / count as f64, nan })
}

/// Formats a number with few digits: `0.00125`, `3`, `-1.5e-7`.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-4..1e6).contains(&size) {
        let places = (4 - size.max(1e-9).log10().floor() as i32).clamp(0, 9) as usize;
        let text = format!("{value:.places$}");
        return if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text };
    }
    format!("{value:.3e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_leave_out_what_is_no_number() {
        let bytes: Vec<u8> = [1.0f32, f32::NAN, -3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let wanted = Statistics { min: -3.0, max: 1.0, mean: -1.0, nan: 1 };
        assert_eq!(statistics(DataType::DtFloat, &bytes), Some(wanted));
        assert_eq!(statistics(DataType::DtFloat, &[]), None);
        assert_eq!(statistics(DataType::DtComplex64, &[0; 8]), None);
    }

    #[test]
    fn halves_are_numbers() {
        let halves = [0x3c00, 0xc000, 0x0001, 0x7bff, 0xfc00].map(half);
        assert_eq!(halves, [1.0, -2.0, 2f64.powi(-24), 65504.0, f64::NEG_INFINITY]);
        assert!(half(0x7e00).is_nan());
        assert_eq!([0.0, 1.5, -0.00125, 1e-7, 123456.0, 3e9].map(short), ["0", "1.5", "-0.00125", "1.000e-7", "123456", "3.000e9"]);
    }
}
