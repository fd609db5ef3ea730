//! What a parser gives.

use crate::values::Values;
use crate::values::ragged::RaggedTensor;
use crate::values::sparse::SparseTensor;
use crate::values::strings::Strings;
use gradlet_core::{Error, Result, Tensor};
use std::collections::BTreeMap;

/// The value of a feature.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// Numbers.
    Tensor(Tensor),
    /// Strings.
    Strings(Strings),
    /// The values that are there, each with its index.
    Sparse(SparseTensor),
    /// Rows of different lengths.
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

/// The values of features, by name.
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
    /// The value of the feature `name`. Fails where it was not asked for.
    pub fn get(&self, name: &str) -> Result<&Parsed> {
        let names = || self.0.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        self.0.get(name).ok_or_else(|| Error::message(format!("there is no feature {name:?}; there are {}", names())))
    }

    accessors! {
        /// The numbers of the feature `name`. Fails where it was not asked for, or is something else.
        tensor Tensor Tensor, "a tensor";
        /// The strings of the feature `name`. Fails where it was not asked for, or is something else.
        strings Strings Strings, "strings";
        /// The sparse tensor of the feature `name`. Fails where it was not asked for, or is something else.
        sparse Sparse SparseTensor, "a sparse tensor";
        /// The ragged tensor of the feature `name`. Fails where it was not asked for, or is something else.
        ragged Ragged RaggedTensor, "a ragged tensor";
    }

    /// Names and values.
    pub fn into_map(self) -> BTreeMap<String, Parsed> {
        self.0
    }
}
