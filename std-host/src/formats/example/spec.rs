//! Features that a parser reads, with their types and shapes.

use crate::formats::proto::Feature;
use crate::formats::proto::feature::Kind;
use gradlet_core::{Error, Result, Shape};
use std::collections::BTreeMap;
use std::fmt;

/// Type of a feature's list. Displays as TensorFlow's name of the type.
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

/// Feature with a fixed number of values in every Example. It is parsed to a dense tensor or [`Strings`](crate::tensor::Strings).
#[derive(Clone, Debug)]
pub struct FixedLenFeature {
    pub(super) feature_type: FeatureType,
    pub(super) dims: Vec<u32>,
    pub(super) default: Option<Feature>,
}

impl FixedLenFeature {
    /// Creates a required feature with the shape `dims`.
    pub fn new(feature_type: FeatureType, dims: &[u32]) -> FixedLenFeature {
        FixedLenFeature { feature_type, dims: dims.into(), default: None }
    }

    /// Sets default values, which must fill the shape. They are used if an Example does not have the feature, or if the feature has no
    /// list. A feature with an empty list is still an error.
    pub fn with_default(self, values: impl Into<Feature>) -> FixedLenFeature {
        FixedLenFeature { default: Some(values.into()), ..self }
    }
}

/// Feature with any number of values. It is parsed to a [`SparseTensor`](crate::tensor::SparseTensor).
#[derive(Clone, Debug)]
pub struct VarLenFeature {
    pub(super) feature_type: FeatureType,
}

impl VarLenFeature {
    /// Creates a feature with any number of values of this type.
    pub fn new(feature_type: FeatureType) -> VarLenFeature {
        VarLenFeature { feature_type }
    }
}

/// Feature with any number of rows of the same shape. It is parsed to a dense tensor, which in a batch is padded to the longest Example.
#[derive(Clone, Debug)]
pub struct FixedLenSequenceFeature {
    pub(super) feature_type: FeatureType,
    pub(super) dims: Vec<u32>,
    pub(super) allow_missing: bool,
    pub(super) default: Option<Feature>,
}

impl FixedLenSequenceFeature {
    /// Creates a feature with rows of the shape `dims`. In a sequence it is required.
    pub fn new(feature_type: FeatureType, dims: &[u32]) -> FixedLenSequenceFeature {
        FixedLenSequenceFeature { feature_type, dims: dims.into(), allow_missing: false, default: None }
    }

    /// If true, a missing feature has no rows. Features of an Example need this setting.
    pub fn allow_missing(self, allow_missing: bool) -> FixedLenSequenceFeature {
        FixedLenSequenceFeature { allow_missing, ..self }
    }

    /// Sets the value that pads a batch, instead of 0 or the empty string.
    pub fn with_default(self, value: impl Into<Feature>) -> FixedLenSequenceFeature {
        FixedLenSequenceFeature { default: Some(value.into()), ..self }
    }
}

/// Feature with any number of values. A batch is parsed to a [`RaggedTensor`](crate::tensor::RaggedTensor), and a single Example to a dense
/// tensor.
#[derive(Clone, Debug)]
pub struct RaggedFeature {
    pub(super) feature_type: FeatureType,
}

impl RaggedFeature {
    /// Creates a feature with any number of values of this type.
    pub fn new(feature_type: FeatureType) -> RaggedFeature {
        RaggedFeature { feature_type }
    }
}

/// Way of parsing a feature.
#[derive(Clone, Debug)]
pub enum FeatureSpec {
    /// Fixed number of values.
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
    /// Returns the type of the feature's lists.
    pub fn feature_type(&self) -> FeatureType {
        match self {
            FeatureSpec::FixedLen(feature) => feature.feature_type,
            FeatureSpec::VarLen(feature) => feature.feature_type,
            FeatureSpec::FixedLenSequence(feature) => feature.feature_type,
            FeatureSpec::Ragged(feature) => feature.feature_type,
        }
    }

    /// Returns the shape of a row and its number of elements. Features without a shape have scalar rows.
    pub(super) fn row(&self) -> Result<(Shape, usize)> {
        let dims = match self {
            FeatureSpec::FixedLen(feature) => &feature.dims[..],
            FeatureSpec::FixedLenSequence(feature) => &feature.dims,
            FeatureSpec::VarLen(_) | FeatureSpec::Ragged(_) => &[],
        };
        let shape = Shape::new(dims)?;
        Ok((shape, shape.elements().ok_or(Error::TooLarge)?))
    }

    /// Returns the default value of the feature, or `None` if it has none. Fails if the default does not have the type of the feature and
    /// `wanted` values.
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
            return Err(Error::message(format!("the default of feature {name:?} is {found}, but the feature is {feature_type}")));
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

/// Features that a parser reads, by name. It skips all others.
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
    /// Creates an empty set of features.
    pub fn new() -> Features {
        Features::default()
    }

    /// Adds a feature, or replaces the one with this name.
    pub fn with(mut self, name: impl Into<String>, feature: impl Into<FeatureSpec>) -> Features {
        self.0.insert(name.into(), feature.into());
        self
    }
}
