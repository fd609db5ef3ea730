//! Check for infinities and NaN: fails unless every element is finite. For floats. TensorFlow's `CheckNumerics`, without its output.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::contraction::FLOAT_UNIT;
#[cfg(feature = "alloc")]
use crate::{
    ops::assert,
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op, which has no outputs. The attribute words are the bytes of a message that describes the tensor, padded with
/// zeros. Kernels ignore them.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::check_numerics, name: "check_numerics", inputs: (1, 1), outputs: 0, infer, in_place: &[] };

fn infer(inputs: &[TensorType], _: &[u32], _: &mut [TensorType]) -> Result<()> {
    if inputs.iter().all(|input| input.dtype.is_float()) { Ok(()) } else { Err(Error::DType { input: 0 }) }
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let input = call.input(0)?;
    let size = input.dtype().size();
    let rows = call.rows(input.bytes().len() / size, 3);
    let part = input.bytes().get(rows.start * size..rows.end * size).unwrap_or(&[]);
    match first_not_finite(input.dtype(), part) {
        Some(position) => Err(Error::NotFinite { node: 0, position: Error::position(rows.start + position) }),
        None => Ok(()),
    }
}

/// Returns the position of the first element of `data` that is infinite or NaN, or `None` if there is none. Integers and booleans are
/// always finite. `data` holds elements of type `dtype`, and is aligned for them.
fn first_not_finite(dtype: DType, data: &[u8]) -> Option<usize> {
    // The bits of the exponent in the last two bytes of an element, and the size of an element.
    let (exponent, size): (u16, usize) = match dtype {
        DType::F32 => (0x7f80, 4),
        DType::F64 => (0x7ff0, 8),
        DType::F16 => (0x7c00, 2),
        DType::Bf16 => (0x7f80, 2),
        _ => return None,
    };
    let mut position = if size == 4 && FLOAT_UNIT { finite_groups(data) } else { 0 };
    let mut rest = data.get(position * size..)?;
    loop {
        let (element, after) = rest.split_at_checked(size)?;
        if u16::from_le_bytes(*element.last_chunk()?) & exponent == exponent {
            return Some(position);
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

/// Portable kernel for f32.
pub const F32: Kernel = Kernel { def: &DEF, dtype: DType::F32, run };
/// Portable kernel for f64.
pub const F64: Kernel = Kernel { def: &DEF, dtype: DType::F64, run };
/// Portable kernel for f16.
pub const F16: Kernel = Kernel { def: &DEF, dtype: DType::F16, run };
/// Portable kernel for bf16.
pub const BF16: Kernel = Kernel { def: &DEF, dtype: DType::Bf16, run };

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::new(&DEF, "check_numerics(x), where x is a float", Gradient::None("it has no output that anything depends on"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Fails with [`Error::NotFinite`] if an element is infinite or NaN. `message` names the tensor. In a traced function, the tensor is
    /// checked when the function runs. Like `tf.debugging.check_numerics`, but returns nothing.
    ///
    /// An exported signature that assigns variables has this check on its inputs and results already
    /// ([`Artifact::finite_steps`](crate::Artifact::finite_steps)).
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, f32::NAN], &[2])?;
    /// let error = x.check_numerics("x").unwrap_err();
    /// assert_eq!(error.to_string(), "x: the element at position 1 is infinite or NaN, but must be finite (instruction 0)");
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    #[doc(alias = "tf.debugging.check_numerics")]
    pub fn check_numerics(&self, message: &str) -> Result<()> {
        assert::check(&OP, message, self)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::dtype::Element;
    use crate::ops::shared::testing::device;
    use half::{bf16, f16};
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn an_odd_element_fails_with_its_position() {
        let check = |elements: &[f32]| Tensor::new(device(), elements, &[elements.len() as u32]).unwrap().check_numerics("loss");
        assert_eq!(check(&[1.0, -0.0, f32::MAX, f32::MAX]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = check(&[1.0, 2.0, odd, odd]).unwrap_err();
            assert_eq!(error.root(), &Error::NotFinite { node: 0, position: 2 });
            assert!(error.to_string().starts_with("loss: "), "{error}");
        }
        assert!(Tensor::scalar(device(), 1i32).check_numerics("no float").unwrap_err().to_string().starts_with("check_numerics(i32[])"));
    }

    /// Puts every value of `odd` at every position of a tensor, and every value of `even` at all of them.
    fn search<T: Element>(even: &[T], odd: &[T]) {
        for length in [0, 1, 2, 15, 16, 17, 40] {
            for &value in even {
                let mut elements: Vec<T> = std::vec![value; length];
                assert_eq!(first_not_finite(T::DTYPE, bytemuck::cast_slice(&elements)), None);
                for (position, &odd) in (0..length).flat_map(|position| odd.iter().map(move |odd| (position, odd))) {
                    elements[position] = odd;
                    assert_eq!(first_not_finite(T::DTYPE, bytemuck::cast_slice(&elements)), Some(position));
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
