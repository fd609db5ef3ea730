//! The search for elements that are infinite or NaN.

use crate::base::dtype::DType;

/// Returns the position of the first element of `data` that is infinite or NaN, or `None` if there is none. Integers and booleans are
/// always finite. `data` holds elements of type `dtype`, and is aligned for them.
#[inline(never)]
pub(crate) fn first_not_finite(dtype: DType, data: &[u8]) -> Option<u32> {
    // The bits of the exponent in the last two bytes of an element, and the size of an element.
    let (exponent, size): (u16, usize) = match dtype {
        DType::F32 => (0x7f80, 4),
        DType::F64 => (0x7ff0, 8),
        DType::F16 => (0x7c00, 2),
        DType::Bf16 => (0x7f80, 2),
        _ => return None,
    };
    let mut position = if size == 4 { finite_groups(data) } else { 0 };
    let mut rest = data.get(position * size..)?;
    loop {
        let (element, after) = rest.split_at_checked(size)?;
        if u16::from_le_bytes(*element.last_chunk()?) & exponent == exponent {
            return Some(position as u32);
        }
        (rest, position) = (after, position + 1);
    }
}

/// Returns the number of f32 elements in whole groups of eight if they are certainly finite, otherwise 0. Their sum is infinite or NaN if
/// an element is. It is also if it exceeds the range of f32, so a sum that is not finite proves nothing. An addition and a load for each
/// element are the fastest test that a Cortex-M4F has.
#[inline(always)]
fn finite_groups(data: &[u8]) -> usize {
    let (groups, _) = bytemuck::try_cast_slice(data).unwrap_or_default().as_chunks();
    let add = |sum: f32, &[a, b, c, d, e, f, g, h]: &[f32; 8]| sum + a + b + c + d + e + f + g + h;
    if groups.iter().fold(0.0, add).is_finite() { 8 * groups.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::dtype::Element;
    use half::{bf16, f16};
    use std::vec::Vec;

    /// Puts every value of `odd` at every position of a tensor, and every value of `even` at all of them.
    fn search<T: Element>(even: &[T], odd: &[T]) {
        for length in [0, 1, 2, 15, 16, 17, 40] {
            for &value in even {
                let mut elements: Vec<T> = std::vec![value; length];
                assert_eq!(first_not_finite(T::DTYPE, bytemuck::cast_slice(&elements)), None);
                for (position, &odd) in (0..length).flat_map(|position| odd.iter().map(move |odd| (position, odd))) {
                    elements[position] = odd;
                    assert_eq!(first_not_finite(T::DTYPE, bytemuck::cast_slice(&elements)), Some(position as u32));
                    elements[position] = value;
                }
            }
        }
    }

    #[test]
    fn the_first_odd_element_is_found() {
        let odd = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7f80_0001), f32::from_bits(0xffc1_2345)];
        search(&[0.0, -0.0, 1.5, 1e-45, f32::MAX, f32::MIN], &odd);
        search(&[0.0, 1e-310, f64::MAX, f64::MIN], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::from_bits(0x7ff0_0000_0000_0001)]);
        search(&[f16::ZERO, f16::MAX, f16::MIN, f16::from_bits(1)], &[f16::NAN, f16::INFINITY, f16::NEG_INFINITY, f16::from_bits(0xfc01)]);
        search(&[bf16::ZERO, bf16::MAX, bf16::MIN, bf16::from_bits(1)], &[bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY]);
        search(&[i32::MIN, -1, i32::MAX], &[]);
        search(&[u8::MAX], &[]);
    }

    /// The sum of an infinity and its negation, and of many large values, must not deceive the search.
    #[test]
    fn sums_that_overflow_are_looked_at() {
        let mut elements = [f32::MAX; 100];
        assert_eq!(first_not_finite(DType::F32, bytemuck::cast_slice(&elements)), None);
        (elements[3], elements[90]) = (f32::NEG_INFINITY, f32::INFINITY);
        assert_eq!(first_not_finite(DType::F32, bytemuck::cast_slice(&elements)), Some(3));
    }
}
