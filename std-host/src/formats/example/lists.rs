//! Values of a feature, from all Examples of a batch.

use super::AsRecord;
use super::spec::FeatureType;
use super::wire::{FIXED32, VARINT, Wire, delimited};
use crate::formats::proto::feature::Kind;
use crate::values::Values;
use crate::values::strings::Strings;
use bytes::Bytes;
use gradlet_core::{Device, Result, Tensor};

/// Values of one type.
pub(super) enum List {
    Strings(Vec<Bytes>),
    F32(Vec<f32>),
    I64(Vec<i64>),
}

impl List {
    pub fn new(feature_type: FeatureType, capacity: usize) -> List {
        match feature_type {
            FeatureType::Strings => List::Strings(Vec::with_capacity(capacity)),
            FeatureType::F32 => List::F32(Vec::with_capacity(capacity)),
            FeatureType::I64 => List::I64(Vec::with_capacity(capacity)),
        }
    }

    pub fn feature_type(&self) -> FeatureType {
        match self {
            List::Strings(_) => FeatureType::Strings,
            List::F32(_) => FeatureType::F32,
            List::I64(_) => FeatureType::I64,
        }
    }

    pub fn len(&self) -> usize {
        match self {
            List::Strings(values) => values.len(),
            List::F32(values) => values.len(),
            List::I64(values) => values.len(),
        }
    }

    /// Appends the values of a serialized list of this type: a `BytesList`, `FloatList` or `Int64List` of `record`. Returns `None` if it is
    /// malformed.
    ///
    /// Numbers are either all packed or all unpacked. Bytes that follow packed numbers are ignored.
    #[inline]
    pub fn append(&mut self, mut list: Wire<'_>, record: &impl AsRecord) -> Option<()> {
        let packed = list.peek() == Some(delimited(1));
        match self {
            List::Strings(values) => {
                while !list.at_end() {
                    values.push(record.share(list.expect(delimited(1)).then(|| list.string())??));
                }
            }
            List::F32(values) if packed => {
                list.expect(delimited(1));
                let floats = list.string()?.chunks_exact(4);
                values.extend(floats.map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])));
            }
            List::F32(values) => {
                while !list.at_end() {
                    let bytes = list.expect(FIXED32).then(|| list.take(4))??;
                    values.push(f32::from_le_bytes(bytes.try_into().ok()?));
                }
            }
            List::I64(values) if packed => {
                list.expect(delimited(1));
                let mut integers = list.message()?;
                while !integers.at_end() {
                    values.push(integers.varint()? as i64);
                }
            }
            List::I64(values) => {
                while !list.at_end() {
                    values.push(list.expect(VARINT).then(|| list.varint())?? as i64);
                }
            }
        }
        Some(())
    }

    /// Appends the values of `kind`, a feature with a list of this type. A list of another type is ignored.
    pub fn extend(&mut self, kind: &Kind) {
        match (self, kind) {
            (List::Strings(values), Kind::BytesList(list)) => values.extend_from_slice(&list.value),
            (List::F32(values), Kind::FloatList(list)) => values.extend_from_slice(&list.value),
            (List::I64(values), Kind::Int64List(list)) => values.extend_from_slice(&list.value),
            _ => (),
        }
    }

    /// Splits the list into rows that end at `ends`, and pads each row to `length` values. The padding value is the only value of
    /// `padding`, by default 0 or the empty string.
    pub fn padded(&self, ends: &[usize], length: usize, padding: Option<&Kind>) -> List {
        fn pad<T: Clone>(values: &[T], ends: &[usize], length: usize, padding: &T) -> Vec<T> {
            let mut padded = Vec::with_capacity(ends.len() * length);
            let mut begin = 0;
            for (row, &end) in ends.iter().enumerate() {
                padded.extend_from_slice(&values[begin..end]);
                padded.resize((row + 1) * length, padding.clone());
                begin = end;
            }
            padded
        }
        let mut value = List::new(self.feature_type(), 1);
        padding.iter().for_each(|kind| value.extend(kind));
        match (self, value) {
            (List::Strings(values), List::Strings(value)) => {
                List::Strings(pad(values, ends, length, &value.first().cloned().unwrap_or_default()))
            }
            (List::F32(values), List::F32(value)) => List::F32(pad(values, ends, length, value.first().unwrap_or(&0.0))),
            (List::I64(values), List::I64(value)) => List::I64(pad(values, ends, length, value.first().unwrap_or(&0))),
            (_, value) => value,
        }
    }

    /// Returns the values in the shape `dims`.
    pub fn into_values(self, device: &Device, dims: &[u32]) -> Result<Values> {
        Ok(match self {
            List::Strings(values) => Strings::new(values, dims)?.into(),
            List::F32(values) => Tensor::new(device, &values, dims)?.into(),
            List::I64(values) => Tensor::new(device, &values, dims)?.into(),
        })
    }
}
