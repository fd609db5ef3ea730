//! What a parser looks for.

use crate::formats::proto::Feature;
use crate::formats::proto::feature::Kind;
use gradlet_core::{Error, Result, Shape};
use std::collections::BTreeMap;
use std::fmt;

/// What the list of a feature holds. Displays as TensorFlow writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureType {
    /// Byte strings.
    Strings,
    /// 32-bit floats.
    F32,
    /// 64-bit integers.
    I64,
}

impl fmt::Display for FeatureType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FeatureType::Strings => "string",
            FeatureType::F32 => "float",
            FeatureType::I64 => "int64",
        })
    }
}

/// A feature with the same number of values in every Example: a dense tensor, or [`Strings`](crate::tensor::Strings).
#[derive(Clone, Debug)]
pub struct FixedLenFeature {
    pub(super) feature_type: FeatureType,
    pub(super) dims: Vec<u32>,
    pub(super) default: Option<Feature>,
}

impl FixedLenFeature {
    /// Values that fill the shape `dims`. Every Example must have them.
    pub fn new(feature_type: FeatureType, dims: &[u32]) -> FixedLenFeature {
        FixedLenFeature { feature_type, dims: dims.into(), default: None }
    }

    /// Takes `values`, which fill the shape, where an Example does not have the feature, or has no list in it. An empty list
    /// is an error all the same.
    pub fn with_default(self, values: impl Into<Feature>) -> FixedLenFeature {
        FixedLenFeature { default: Some(values.into()), ..self }
    }
}

/// A feature with any number of values: a [`SparseTensor`](crate::tensor::SparseTensor).
#[derive(Clone, Debug)]
pub struct VarLenFeature {
    pub(super) feature_type: FeatureType,
}

impl VarLenFeature {
    /// Any number of values.
    pub fn new(feature_type: FeatureType) -> VarLenFeature {
        VarLenFeature { feature_type }
    }
}

/// A feature with any number of rows of the same shape: a dense tensor, in a batch padded to the longest Example.
#[derive(Clone, Debug)]
pub struct FixedLenSequenceFeature {
    pub(super) feature_type: FeatureType,
    pub(super) dims: Vec<u32>,
    pub(super) allow_missing: bool,
    pub(super) default: Option<Feature>,
}

impl FixedLenSequenceFeature {
    /// Rows of the shape `dims`. As a feature of a sequence it must be there.
    pub fn new(feature_type: FeatureType, dims: &[u32]) -> FixedLenSequenceFeature {
        FixedLenSequenceFeature { feature_type, dims: dims.into(), allow_missing: false, default: None }
    }

    /// Takes no rows where the feature is missing. An Example's feature must be allowed to be.
    pub fn allow_missing(self, allow_missing: bool) -> FixedLenSequenceFeature {
        FixedLenSequenceFeature { allow_missing, ..self }
    }

    /// What a batch is padded with, instead of 0 or the empty string: one value.
    pub fn with_default(self, value: impl Into<Feature>) -> FixedLenSequenceFeature {
        FixedLenSequenceFeature { default: Some(value.into()), ..self }
    }
}

/// A feature with any number of values: a [`RaggedTensor`](crate::tensor::RaggedTensor) of a batch, a dense tensor of one Example.
#[derive(Clone, Debug)]
pub struct RaggedFeature {
    pub(super) feature_type: FeatureType,
}

impl RaggedFeature {
    /// Any number of values.
    pub fn new(feature_type: FeatureType) -> RaggedFeature {
        RaggedFeature { feature_type }
    }
}

/// How a feature is to be read.
#[derive(Clone, Debug)]
pub enum FeatureSpec {
    /// The same number of values everywhere.
    FixedLen(FixedLenFeature),
    /// Any number of values, as a sparse tensor.
    VarLen(VarLenFeature),
    /// Any number of rows, padded.
    FixedLenSequence(FixedLenSequenceFeature),
    /// Any number of values, as a ragged tensor.
    Ragged(RaggedFeature),
}

macro_rules! specs {
    ($($feature:ident $kind:ident),*) => {$(
        impl From<$feature> for FeatureSpec {
            fn from(feature: $feature) -> FeatureSpec {
                FeatureSpec::$kind(feature)
            }
        }
    )*};
}
specs!(FixedLenFeature FixedLen, VarLenFeature VarLen, FixedLenSequenceFeature FixedLenSequence, RaggedFeature Ragged);

impl FeatureSpec {
    /// What its lists hold.
    pub fn feature_type(&self) -> FeatureType {
        match self {
            FeatureSpec::FixedLen(feature) => feature.feature_type,
            FeatureSpec::VarLen(feature) => feature.feature_type,
            FeatureSpec::FixedLenSequence(feature) => feature.feature_type,
            FeatureSpec::Ragged(feature) => feature.feature_type,
        }
    }

    /// The shape of a row, and how many values it has: a scalar for what has no shape.
    pub(super) fn row(&self) -> Result<(Shape, usize)> {
        let dims = match self {
            FeatureSpec::FixedLen(feature) => &feature.dims[..],
            FeatureSpec::FixedLenSequence(feature) => &feature.dims,
            FeatureSpec::VarLen(_) | FeatureSpec::Ragged(_) => &[],
        };
        let shape = Shape::new(dims)?;
        Ok((shape, shape.elements().ok_or(Error::TooLarge)? as usize))
    }

    /// The default, which must be of the type of the list, and have `wanted` values.
    pub(super) fn default(&self, name: &str, wanted: usize) -> Result<Option<&Kind>> {
        let feature = match self {
            FeatureSpec::FixedLen(feature) => &feature.default,
            FeatureSpec::FixedLenSequence(feature) => &feature.default,
            FeatureSpec::VarLen(_) | FeatureSpec::Ragged(_) => &None,
        };
        let Some(feature) = feature else { return Ok(None) };
        let (found, count) = feature.list().ok_or_else(|| Error::message(format!("the default of feature {name:?} has no values")))?;
        let feature_type = self.feature_type();
        if found != feature_type {
            return Err(Error::message(format!("the default of feature {name:?} is {found}, and the feature {feature_type}")));
        }
        if count != wanted {
            let text = format!(
                "the default of feature {name:?}: Input to reshape is a tensor with {count} values, but the requested shape has {wanted}"
            );
            return Err(Error::message(text));
        }
        Ok(feature.kind.as_ref())
    }
}

/// The features that a parser looks for, by name; it passes over all others.
///
/// ```
/// use gradlet::io::example::{FeatureType, Features, FixedLenFeature, VarLenFeature};
/// let features = Features::new()
///     .with("image", FixedLenFeature::new(FeatureType::Strings, &[]))
///     .with("label", FixedLenFeature::new(FeatureType::I64, &[]).with_default(-1))
///     .with("words", VarLenFeature::new(FeatureType::Strings));
/// # let _ = features;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Features(pub(super) BTreeMap<String, FeatureSpec>);

impl Features {
    /// No features.
    pub fn new() -> Features {
        Features::default()
    }

    /// These and one more.
    pub fn with(mut self, name: impl Into<String>, feature: impl Into<FeatureSpec>) -> Features {
        self.0.insert(name.into(), feature.into());
        self
    }
}
