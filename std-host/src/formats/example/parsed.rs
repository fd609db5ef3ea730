//! Results of the parsers.

use crate::values::Values;
use crate::values::ragged::RaggedTensor;
use crate::values::sparse::SparseTensor;
use crate::values::strings::Strings;
use gradlet_core::{Error, Result, Tensor};
use std::collections::BTreeMap;

/// Value of a parsed feature.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// Tensor of numbers.
    Tensor(Tensor),
    /// Strings.
    Strings(Strings),
    /// Sparse tensor of the existing values.
    Sparse(SparseTensor),
    /// Ragged tensor of rows of different lengths.
    Ragged(RaggedTensor),
}

impl Parsed {
    fn what(&self) -> &'static str {
        match self {
            Parsed::Tensor(_) => "a tensor",
            Parsed::Strings(_) => "strings",
            Parsed::Sparse(_) => "a sparse tensor",
            Parsed::Ragged(_) => "a ragged tensor",
        }
    }
}

impl From<Values> for Parsed {
    fn from(values: Values) -> Parsed {
        match values {
            Values::Numbers(tensor) => Parsed::Tensor(tensor),
            Values::Strings(strings) => Parsed::Strings(strings),
        }
    }
}

/// Values of parsed features, by name.
#[derive(Clone, Debug, Default)]
pub struct ParsedFeatures(pub(super) BTreeMap<String, Parsed>);

macro_rules! accessors {
    ($($(#[$doc:meta])* $name:ident $kind:ident $ty:ty, $what:literal;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, name: &str) -> Result<&$ty> {
            match self.get(name)? {
                Parsed::$kind(value) => Ok(value),
                other => Err(Error::message(format!(concat!("feature {:?} is {}, not ", $what), name, other.what()))),
            }
        }
    )*};
}

impl ParsedFeatures {
    /// Returns the value of the feature `name`. Fails if it was not requested.
    pub fn get(&self, name: &str) -> Result<&Parsed> {
        let names = || self.0.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        self.0.get(name).ok_or_else(|| Error::message(format!("there is no feature {name:?}; there are {}", names())))
    }

    accessors! {
        /// Returns the numbers of the feature `name`. Fails if it was not requested, or is of another kind.
        tensor Tensor Tensor, "a tensor";
        /// Returns the strings of the feature `name`. Fails if it was not requested, or is of another kind.
        strings Strings Strings, "strings";
        /// Returns the sparse tensor of the feature `name`. Fails if it was not requested, or is of another kind.
        sparse Sparse SparseTensor, "a sparse tensor";
        /// Returns the ragged tensor of the feature `name`. Fails if it was not requested, or is of another kind.
        ragged Ragged RaggedTensor, "a ragged tensor";
    }

    /// Returns the names and values.
    pub fn into_map(self) -> BTreeMap<String, Parsed> {
        self.0
    }
}
