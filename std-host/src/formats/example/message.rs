//! Examples as messages that are created, written and read as a whole.

use super::spec::FeatureType;
use crate::formats::proto::feature::Kind;
use crate::formats::proto::{BytesList, Example, Feature, FeatureList, FeatureLists, Features, FloatList, Int64List, SequenceExample};
use bytes::{BufMut, Bytes};
use gradlet_core::{Error, Result};
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};
use std::cmp::Ordering;
use std::collections::BTreeMap;

impl Example {
    /// Creates an Example without features.
    ///
    /// ```
    /// use gradlet::io::example::Example;
    /// let example = Example::new().with("image", &[0u8; 784]).with("label", 3).with("box", [0.0f32, 0.5, 0.25, 1.0]);
    /// let record = example.to_bytes();
    /// assert_eq!(Example::from_bytes(record)?, example);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn new() -> Example {
        Example { features: Some(Features::default()) }
    }

    /// Adds a feature, or replaces the one with this name.
    pub fn with(mut self, name: impl Into<String>, feature: impl Into<Feature>) -> Example {
        self.features.get_or_insert_default().feature.insert(name.into(), feature.into());
        self
    }

    /// Returns the feature with this name.
    pub fn feature(&self, name: &str) -> Option<&Feature> {
        self.features.as_ref()?.feature.get(name)
    }

    /// Serializes the message. Equal features result in equal bytes, which are identical to TensorFlow's.
    ///
    /// Unlike the bytes of [`Message::encode`], they contain every name and feature, also empty ones. TensorFlow's parser requires that.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::new();
        self.features.iter().for_each(|features| put_map(&mut bytes, 1, &features.feature, Feature::encode_to_vec));
        bytes.into()
    }

    /// Parses a message. Its strings share the memory of `record`. Fails if the bytes are not an Example.
    pub fn from_bytes(record: impl Into<Bytes>) -> Result<Example> {
        Example::decode(record.into()).map_err(|error| Error::message(format!("this is not an Example: {error}")))
    }
}

impl SequenceExample {
    /// Creates a SequenceExample without features.
    ///
    /// ```
    /// use gradlet::io::example::SequenceExample;
    /// let example = SequenceExample::new().with_context("id", 7).with_steps("words", [vec![1i64, 2], vec![3]]);
    /// assert_eq!(SequenceExample::from_bytes(example.to_bytes())?, example);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn new() -> SequenceExample {
        SequenceExample::default()
    }

    /// Adds a context feature, which belongs to the whole sequence, or replaces the one with this name.
    pub fn with_context(mut self, name: impl Into<String>, feature: impl Into<Feature>) -> SequenceExample {
        self.context.get_or_insert_default().feature.insert(name.into(), feature.into());
        self
    }

    /// Adds a feature list, with one feature for each step of the sequence, or replaces the one with this name.
    pub fn with_steps(mut self, name: impl Into<String>, steps: impl IntoIterator<Item = impl Into<Feature>>) -> SequenceExample {
        let feature = steps.into_iter().map(Into::into).collect();
        self.feature_lists.get_or_insert_default().feature_list.insert(name.into(), FeatureList { feature });
        self
    }

    /// Serializes the message like TensorFlow. See [`Example::to_bytes`].
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::new();
        self.context.iter().for_each(|context| put_map(&mut bytes, 1, &context.feature, Feature::encode_to_vec));
        self.feature_lists
            .iter()
            .for_each(|FeatureLists { feature_list }| put_map(&mut bytes, 2, feature_list, FeatureList::encode_to_vec));
        bytes.into()
    }

    /// Parses a message. Its strings share the memory of `record`. Fails if the bytes are not a SequenceExample.
    pub fn from_bytes(record: impl Into<Bytes>) -> Result<SequenceExample> {
        SequenceExample::decode(record.into()).map_err(|error| Error::message(format!("this is not a SequenceExample: {error}")))
    }
}

/// Appends field `number`: a message whose only field is a map.
fn put_map<T>(bytes: &mut Vec<u8>, number: u8, map: &BTreeMap<String, T>, encode: fn(&T) -> Vec<u8>) {
    let mut message = Vec::new();
    let mut entries: Vec<(&String, &T)> = map.iter().collect();
    entries.sort_by(|(one, _), (other, _)| order(one.as_bytes(), other.as_bytes()));
    for (name, value) in entries {
        let value = encode(value);
        let field = |length: usize| 1 + encoded_len_varint(length as u64) + length;
        message.put_u8(super::wire::delimited(1));
        encode_varint((field(name.len()) + field(value.len())) as u64, &mut message);
        put_field(&mut message, 1, name.as_bytes());
        put_field(&mut message, 2, &value);
    }
    put_field(bytes, number, &message);
}

/// Compares names in the order of TensorFlow's Python code. They are ordered by their bytes, but a longer name comes before its own prefix.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    let common = one.len().min(other.len());
    one[..common].cmp(&other[..common]).then(other.len().cmp(&one.len()))
}

fn put_field(bytes: &mut Vec<u8>, number: u8, value: &[u8]) {
    bytes.put_u8(super::wire::delimited(number));
    encode_varint(value.len() as u64, bytes);
    bytes.put_slice(value);
}

impl Feature {
    /// Returns the strings, if the feature has a list of strings.
    pub fn strings(&self) -> Option<&[Bytes]> {
        if let Some(Kind::BytesList(list)) = &self.kind { Some(&list.value) } else { None }
    }

    /// Returns the floats, if the feature has a list of floats.
    pub fn f32s(&self) -> Option<&[f32]> {
        if let Some(Kind::FloatList(list)) = &self.kind { Some(&list.value) } else { None }
    }

    /// Returns the integers, if the feature has a list of integers.
    pub fn i64s(&self) -> Option<&[i64]> {
        if let Some(Kind::Int64List(list)) = &self.kind { Some(&list.value) } else { None }
    }

    /// Returns the type of the list and the number of its values, or `None` if the feature has no list.
    pub fn list(&self) -> Option<(FeatureType, usize)> {
        Some(match self.kind.as_ref()? {
            Kind::BytesList(list) => (FeatureType::Strings, list.value.len()),
            Kind::FloatList(list) => (FeatureType::F32, list.value.len()),
            Kind::Int64List(list) => (FeatureType::I64, list.value.len()),
        })
    }
}

fn strings<T: Into<Bytes>>(values: impl IntoIterator<Item = T>) -> Feature {
    Feature { kind: Some(Kind::BytesList(BytesList { value: values.into_iter().map(Into::into).collect() })) }
}

impl From<Vec<f32>> for Feature {
    fn from(value: Vec<f32>) -> Feature {
        Feature { kind: Some(Kind::FloatList(FloatList { value })) }
    }
}

impl From<Vec<i64>> for Feature {
    fn from(value: Vec<i64>) -> Feature {
        Feature { kind: Some(Kind::Int64List(Int64List { value })) }
    }
}

impl From<Vec<Bytes>> for Feature {
    fn from(value: Vec<Bytes>) -> Feature {
        strings(value)
    }
}

/// Implements conversions to a feature. Each line is a type and the expression that converts a value of it.
macro_rules! features {
    ($($(const $n:ident:)? $ty:ty, $value:ident => $feature:expr;)*) => {$(
        impl$(<const $n: usize>)? From<$ty> for Feature {
            fn from($value: $ty) -> Feature {
                $feature
            }
        }
    )*};
}
features! {
    f32, value => vec![value].into();
    i64, value => vec![value].into();
    i32, value => vec![i64::from(value)].into();
    Bytes, value => vec![value].into();
    Vec<u8>, value => strings([value]);
    String, value => strings([value]);
    &[u8], value => strings([value.to_vec()]);
    &str, value => strings([value.to_owned()]);
    &[f32], values => values.to_vec().into();
    &[i64], values => values.to_vec().into();
    &[Bytes], values => values.to_vec().into();
    &[&str], values => strings(values.iter().map(|value| value.to_string()));
    Vec<String>, values => strings(values);
    const N: &[u8; N], value => strings([value.to_vec()]);
    const N: [f32; N], values => values.to_vec().into();
    const N: [i64; N], values => values.to_vec().into();
    const N: [i32; N], values => values.map(i64::from).to_vec().into();
    const N: [&str; N], values => values[..].into();
}
