//! `Example` and `SequenceExample`, TensorFlow's messages for the records of training data.
//!
//! [`Example`] and [`SequenceExample`] can be created, written and read as a whole. [`parse_example`] and the other parsers read the
//! features that [`Features`] selects into tensors, directly from the bytes.

mod lists;
mod message;
mod parse;
mod parsed;
mod sequence;
mod spec;
#[cfg(test)]
mod tests;
mod wire;

pub use crate::formats::proto::{Example, Feature, SequenceExample};
pub use parse::{parse_example, parse_single_example};
pub use parsed::{Parsed, ParsedFeatures};
pub use sequence::parse_single_sequence_example;
pub use spec::{FeatureSpec, FeatureType, Features, FixedLenFeature, FixedLenSequenceFeature, RaggedFeature, VarLenFeature};

use bytes::Bytes;
use gradlet_core::Error;

/// Bytes of a serialized message. Parts of [`Bytes`] share its memory; parts of other types are copied.
pub trait AsRecord: AsRef<[u8]> {
    /// Returns a part of the bytes as [`Bytes`], which share their memory or are a copy.
    fn share(&self, part: &[u8]) -> Bytes;
}

impl AsRecord for Bytes {
    fn share(&self, part: &[u8]) -> Bytes {
        self.slice_ref(part)
    }
}

macro_rules! copied {
    ($($ty:ty),*) => {$(
        impl AsRecord for $ty {
            fn share(&self, part: &[u8]) -> Bytes {
                Bytes::copy_from_slice(part)
            }
        }
    )*};
}
copied!(Vec<u8>, &[u8]);

/// Returns the error for a record that is not a valid message. It shows the first bytes of the record.
fn could_not_parse(record: &[u8]) -> Error {
    let shown = String::from_utf8_lossy(&record[..record.len().min(100)]);
    let more = if record.len() > 100 { "…" } else { "" };
    Error::message(format!("Could not parse example input, value: '{shown}{more}'"))
}
