//! `Example` and `SequenceExample`: what the records of TensorFlow's training sets hold.
//!
//! [`Example`] and [`SequenceExample`] are made, written and read whole. [`parse_example`] and its sisters give tensors of the
//! features that [`Features`] name, straight from the bytes.

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

/// The bytes of a serialized message. Of [`Bytes`], parts are shared; of all others they are copied.
pub trait AsRecord: AsRef<[u8]> {
    /// A part of the bytes, on its own.
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

/// The error of a record that is no message, with how it begins.
fn could_not_parse(record: &[u8]) -> Error {
    let shown = String::from_utf8_lossy(&record[..record.len().min(100)]);
    let more = if record.len() > 100 { "…" } else { "" };
    Error::message(format!("Could not parse example input, value: '{shown}{more}'"))
}
