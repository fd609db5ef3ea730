//! Serialized elements, for cache files.

use crate::values::strings::Strings;
use bytes::{Buf, Bytes};
use gradlet_core::{DType, Error, Result, Shape, Tensor, TensorType};
use std::collections::BTreeMap;

/// Elements that can be written to a file and read again: tensors, numbers, strings, and tuples, vectors and maps of these.
///
/// All numbers are little-endian.
///
/// - A tensor is the code of its element type (u8), its rank (u8), its dimensions (u32 each) and its elements.
/// - A string is its length (u32) and its bytes.
/// - An array of strings is its rank (u8), its dimensions (u32 each) and its strings.
/// - A vector is its length (u32) and its elements.
/// - A map is its length (u32) and its elements, each preceded by its name.
/// - A tuple is its components.
pub trait Stored: Sized {
    /// Appends the element to `bytes`.
    fn store(&self, bytes: &mut Vec<u8>) -> Result<()>;
    /// Removes an element from the front of `bytes` and returns it. Fails if the bytes are not a complete element. Tensors are placed on
    /// [`cpu`](crate::compute::devices::cpu).
    fn load(bytes: &mut Bytes) -> Result<Self>;
}

fn take(bytes: &mut Bytes, count: usize) -> Result<Bytes> {
    if bytes.len() < count {
        return Err(Error::message(format!("a stored element is cut short: it needs {count} more bytes, but only {} remain", bytes.len())));
    }
    Ok(bytes.split_to(count))
}

fn store_length(length: usize, bytes: &mut Vec<u8>) -> Result<()> {
    let length = u32::try_from(length).map_err(|_| Error::TooLarge)?;
    length.store(bytes)
}

fn store_dims(dims: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
    bytes.push(dims.len() as u8);
    dims.iter().try_for_each(|dim| dim.store(bytes))
}

fn load_shape(bytes: &mut Bytes) -> Result<Shape> {
    let rank = u8::load(bytes)?;
    let dims: Vec<u32> = (0..rank).map(|_| u32::load(bytes)).collect::<Result<_>>()?;
    Shape::new(&dims)
}

macro_rules! numbers {
    ($($ty:ty)*) => {$(
        impl Stored for $ty {
            fn store(&self, bytes: &mut Vec<u8>) -> Result<()> {
                bytes.extend_from_slice(&self.to_le_bytes());
                Ok(())
            }
            fn load(bytes: &mut Bytes) -> Result<$ty> {
                let mut word = [0; size_of::<$ty>()];
                take(bytes, word.len())?.copy_to_slice(&mut word);
                Ok(<$ty>::from_le_bytes(word))
            }
        }
    )*};
}
numbers! { f32 f64 i8 u8 i32 u32 i64 u64 }

impl Stored for bool {
    fn store(&self, bytes: &mut Vec<u8>) -> Result<()> {
        u8::from(*self).store(bytes)
    }
    fn load(bytes: &mut Bytes) -> Result<bool> {
        Ok(u8::load(bytes)? != 0)
    }
}

impl Stored for Tensor {
    fn store(&self, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.push(self.dtype() as u8);
        store_dims(self.dims(), bytes)?;
        bytes.extend_from_slice(&self.bytes()?);
        Ok(())
    }
    fn load(bytes: &mut Bytes) -> Result<Tensor> {
        let code = u8::load(bytes)?;
        let dtype = DType::from_code(code).ok_or_else(|| Error::message(format!("a stored tensor has the unknown element type {code}")))?;
        let tensor_type = TensorType::new(dtype, load_shape(bytes)?);
        let elements = take(bytes, tensor_type.bytes().ok_or(Error::TooLarge)?)?;
        Tensor::from_bytes(&crate::compute::devices::cpu(), tensor_type, &elements)
    }
}

impl Stored for Bytes {
    fn store(&self, bytes: &mut Vec<u8>) -> Result<()> {
        store_length(self.len(), bytes)?;
        bytes.extend_from_slice(self);
        Ok(())
    }
    fn load(bytes: &mut Bytes) -> Result<Bytes> {
        let length = u32::load(bytes)?;
        take(bytes, length as usize)
    }
}

impl Stored for String {
    fn store(&self, bytes: &mut Vec<u8>) -> Result<()> {
        store_length(self.len(), bytes)?;
        bytes.extend_from_slice(self.as_bytes());
        Ok(())
    }
    fn load(bytes: &mut Bytes) -> Result<String> {
        let text = Bytes::load(bytes)?;
        String::from_utf8(text.into()).map_err(|error| Error::message(format!("a stored text is not UTF-8: {error}")))
    }
}

impl Stored for Strings {
    fn store(&self, bytes: &mut Vec<u8>) -> Result<()> {
        store_dims(self.dims(), bytes)?;
        self.values().iter().try_for_each(|value| value.store(bytes))
    }
    fn load(bytes: &mut Bytes) -> Result<Strings> {
        let shape = load_shape(bytes)?;
        let count = shape.elements().ok_or(Error::TooLarge)?;
        let values = (0..count).map(|_| Bytes::load(bytes)).collect::<Result<_>>()?;
        Strings::new(values, shape.dims())
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn store(&self, bytes: &mut Vec<u8>) -> Result<()> {
        store_length(self.len(), bytes)?;
        self.iter().try_for_each(|element| element.store(bytes))
    }
    fn load(bytes: &mut Bytes) -> Result<Vec<T>> {
        let count = u32::load(bytes)?;
        (0..count).map(|_| T::load(bytes)).collect()
    }
}

impl<T: Stored> Stored for BTreeMap<String, T> {
    fn store(&self, bytes: &mut Vec<u8>) -> Result<()> {
        store_length(self.len(), bytes)?;
        self.iter().try_for_each(|(name, element)| {
            name.store(bytes)?;
            element.store(bytes)
        })
    }
    fn load(bytes: &mut Bytes) -> Result<BTreeMap<String, T>> {
        let count = u32::load(bytes)?;
        (0..count).map(|_| Ok((String::load(bytes)?, T::load(bytes)?))).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: Stored),*> Stored for ($($name,)*) {
            fn store(&self, bytes: &mut Vec<u8>) -> Result<()> {
                $(self.$index.store(bytes)?;)*
                Ok(())
            }
            fn load(bytes: &mut Bytes) -> Result<Self> {
                Ok(($($name::load(bytes)?,)*))
            }
        }
    )*};
}
tuples! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_comes_back_and_cuts_are_errors() {
        let tensor = Tensor::constant(&crate::compute::devices::cpu(), [[1.5f32, -2.0]]).unwrap();
        let map = BTreeMap::from([("a".to_string(), Strings::vector(["x", "yy"]))]);
        let element = (tensor, map, vec![(1i64, true)], "text".to_string());
        let mut bytes = Vec::new();
        element.store(&mut bytes).unwrap();
        type Element = (Tensor, BTreeMap<String, Strings>, Vec<(i64, bool)>, String);
        let mut rest = Bytes::from(bytes.clone());
        let (tensor, map, pairs, text) = Element::load(&mut rest).unwrap();
        assert!(rest.is_empty());
        assert_eq!((tensor.dims(), tensor.to_vec::<f32>().unwrap()), (&[1, 2][..], vec![1.5, -2.0]));
        assert_eq!((&map, &pairs, &text), (&element.1, &element.2, &element.3));
        for length in 0..bytes.len() {
            assert!(Element::load(&mut Bytes::copy_from_slice(&bytes[..length])).is_err(), "{length}");
        }
    }

    #[test]
    fn a_claim_of_many_elements_costs_nothing() {
        let mut bytes = Bytes::from_static(&[255, 255, 255, 255, 0]);
        assert!(Vec::<u64>::load(&mut bytes).is_err());
        let mut bytes = Bytes::from_static(&[1, 2, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert!(Tensor::load(&mut bytes).is_err());
    }
}
