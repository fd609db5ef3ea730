//! Numbers stored as raw bytes in strings.

use crate::values::strings::Strings;
use bytemuck::allocation::pod_collect_to_vec;
use gradlet_core::{DType, Error, Result, Shape, Tensor, TensorType};
use std::fmt;

/// Type of the raw elements: any element type of tensors, or one of two further types, which are converted to i32.
///
/// Displays as TensorFlow's name of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawType {
    /// Element type of tensors.
    Of(DType),
    /// Signed 16-bit integers, converted to i32.
    I16,
    /// Unsigned 16-bit integers, converted to i32.
    U16,
}

impl RawType {
    /// Returns the size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            RawType::Of(dtype) => dtype.size(),
            RawType::I16 | RawType::U16 => 2,
        }
    }

    /// Returns the element type of the decoded tensor.
    pub fn dtype(self) -> DType {
        match self {
            RawType::Of(dtype) => dtype,
            RawType::I16 | RawType::U16 => DType::I32,
        }
    }
}

impl From<DType> for RawType {
    fn from(dtype: DType) -> RawType {
        RawType::Of(dtype)
    }
}

impl fmt::Display for RawType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RawType::Of(dtype) => crate::formats::tensor_proto::name(*dtype),
            RawType::I16 => "int16",
            RawType::U16 => "uint16",
        })
    }
}

/// Byte order of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Lowest byte first.
    Little,
    /// Highest byte first.
    Big,
}

/// Decodes numbers from the raw bytes of strings. The result has the dimensions of the strings, followed by the number of elements in each
/// string.
///
/// Fails if the lengths of the strings differ, or are not a multiple of the element size.
///
/// ```
/// use gradlet::io::{ByteOrder, RawType, decode_raw};
/// use gradlet::DType;
/// use gradlet::tensor::Strings;
/// let strings = Strings::vector([&[1u8, 2][..], &[3, 4]].map(|bytes| bytes.to_vec()));
/// let pixels = decode_raw(&strings, DType::U8, ByteOrder::Little)?;
/// assert_eq!((pixels.dims(), pixels.to_vec::<u8>()?), (&[2, 2][..], vec![1, 2, 3, 4]));
/// let samples = decode_raw(&strings, RawType::I16, ByteOrder::Big)?;
/// assert_eq!((samples.dims(), samples.to_vec::<i32>()?), (&[2, 1][..], vec![0x102, 0x304]));
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn decode_raw(strings: &Strings, to: impl Into<RawType>, order: ByteOrder) -> Result<Tensor> {
    let (to, values) = (to.into(), strings.values());
    let length = values.first().map_or(0, |first| first.len());
    if let Some((at, other)) = values.iter().enumerate().find(|(_, value)| value.len() != length) {
        let text =
            format!("DecodeRaw requires input strings to all be the same size, but element {at} has size {} != {length}", other.len());
        return Err(Error::message(text));
    }
    if !length.is_multiple_of(to.size()) {
        let text = format!("Input to DecodeRaw has length {length} that is not a multiple of {}, the size of {to}", to.size());
        return Err(Error::message(text));
    }
    let mut shape = Shape::new(strings.dims())?;
    shape.push(u32::try_from(length / to.size()).map_err(|_| Error::TooLarge)?)?;
    let tensor_type = TensorType::new(to.dtype(), shape);
    let mut bytes = Vec::with_capacity(length.checked_mul(values.len()).ok_or(Error::TooLarge)?);
    values.iter().for_each(|value| bytes.extend_from_slice(value));
    if order == ByteOrder::Big {
        bytes.chunks_exact_mut(to.size()).for_each(<[u8]>::reverse);
    }
    let widened: Vec<i32> = match to {
        RawType::Of(_) => return Tensor::from_bytes(&crate::compute::devices::cpu(), tensor_type, &bytes),
        RawType::I16 => pod_collect_to_vec::<u8, i16>(&bytes).into_iter().map(i32::from).collect(),
        RawType::U16 => pod_collect_to_vec::<u8, u16>(&bytes).into_iter().map(i32::from).collect(),
    };
    Tensor::new(&crate::compute::devices::cpu(), &widened, shape.dims())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(strings: &[&'static [u8]], to: impl Into<RawType>) -> Result<Tensor> {
        decode_raw(&Strings::vector(strings.iter().copied()), to, ByteOrder::Little)
    }

    #[test]
    fn strings_must_be_of_one_size_that_divides() {
        assert!(decode(&[b"ab", b"c"], DType::U8).unwrap_err().to_string().contains("element 1 has size 1 != 2"));
        assert!(decode(&[b"abc"], DType::I32).unwrap_err().to_string().contains("not a multiple of 4, the size of int32"));
        assert_eq!(decode(&[], DType::F32).unwrap().dims(), [0, 0]);
        assert_eq!(decode(&[b"", b""], RawType::U16).unwrap().dims(), [2, 0]);
    }

    #[test]
    fn sixteen_bits_become_i32() {
        assert_eq!(decode(&[&[0xff, 0xff, 1, 0]], RawType::I16).unwrap().to_vec::<i32>().unwrap(), [-1, 1]);
        assert_eq!(decode(&[&[0xff, 0xff, 1, 0]], RawType::U16).unwrap().to_vec::<i32>().unwrap(), [65535, 1]);
    }
}
