//! Types of dataset elements.

use super::Dataset;
use super::element::Element;
use gradlet_core::{Error, Result, TensorSpec};
use std::collections::BTreeMap;
use std::fmt;

/// Dimensions of an element; `None` for an unknown dimension.
pub(super) type OpenDims = Vec<Option<u32>>;

/// Type of a dataset's elements: TensorFlow's `element_spec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementSpec {
    /// A tensor of numbers.
    Tensor(TensorSpec),
    /// Byte strings with these dimensions; `None` for an unknown dimension.
    Strings(Vec<Option<u32>>),
    /// A ragged tensor, whose rows have different lengths.
    Ragged(TensorSpec),
    /// A tuple of elements.
    Tuple(Vec<ElementSpec>),
    /// A map of elements by name.
    Dict(BTreeMap<String, ElementSpec>),
    /// A dataset whose elements have this type.
    Dataset(Box<ElementSpec>),
}

impl ElementSpec {
    /// Returns the type of a batch of `size` elements. A `size` of `None` means that the size of the batches varies.
    pub(super) fn batched(&self, size: Option<u32>) -> ElementSpec {
        self.each(&mut |dims| [&[size], dims].concat())
    }

    /// Returns the type of a slice of an element along its first axis. Fails for scalars.
    pub(super) fn unbatched(&self) -> Result<ElementSpec> {
        let mut scalar = false;
        let part = self.each(&mut |dims| {
            scalar |= dims.is_empty();
            dims.get(1..).unwrap_or(&[]).to_vec()
        });
        if scalar { Err(Error::message("Cannot unbatch an input with scalar components.")) } else { Ok(part) }
    }

    /// Returns the number of slices of an element along its first axis, or `None` if it is unknown.
    pub(super) fn rows(&self) -> Option<u32> {
        let mut rows = None;
        self.each(&mut |dims| {
            rows = rows.or(dims.first().copied().flatten());
            dims.to_vec()
        });
        rows
    }

    /// Returns this type with `change` applied to the dimensions of each tensor and each array of strings.
    pub(super) fn each(&self, change: &mut dyn FnMut(&[Option<u32>]) -> OpenDims) -> ElementSpec {
        match self {
            ElementSpec::Tensor(spec) => ElementSpec::Tensor(with_dims(spec, change)),
            ElementSpec::Ragged(spec) => ElementSpec::Ragged(with_dims(spec, change)),
            ElementSpec::Strings(dims) => ElementSpec::Strings(change(dims)),
            ElementSpec::Tuple(parts) => ElementSpec::Tuple(parts.iter().map(|part| part.each(change)).collect()),
            ElementSpec::Dict(parts) => ElementSpec::Dict(parts.iter().map(|(name, part)| (name.clone(), part.each(change))).collect()),
            ElementSpec::Dataset(inner) => ElementSpec::Dataset(inner.clone()),
        }
    }

    /// Returns the type of a ragged batch of `size` elements, or of a varying number for `None`. Tensors with an unknown dimension become
    /// ragged tensors.
    pub(super) fn ragged_batched(&self, size: Option<u32>) -> ElementSpec {
        match self {
            ElementSpec::Tensor(spec) if spec.dims().is_some_and(|dims| dims.contains(&None)) => {
                ElementSpec::Ragged(with_dims(spec, &mut |dims| [&[size], dims].concat()))
            }
            ElementSpec::Tuple(parts) => ElementSpec::Tuple(parts.iter().map(|part| part.ragged_batched(size)).collect()),
            ElementSpec::Dict(parts) => {
                ElementSpec::Dict(parts.iter().map(|(name, part)| (name.clone(), part.ragged_batched(size))).collect())
            }
            other => other.batched(size),
        }
    }

    /// Returns the types of the components, in order. The components of nested tuples and maps are listed individually.
    pub(super) fn leaves(&self) -> Vec<&ElementSpec> {
        match self {
            ElementSpec::Tuple(parts) => parts.iter().flat_map(ElementSpec::leaves).collect(),
            ElementSpec::Dict(parts) => parts.values().flat_map(ElementSpec::leaves).collect(),
            leaf => vec![leaf],
        }
    }

    /// Returns the most specific type that includes both types. Fails if they differ in more than dimensions.
    pub(super) fn join(&self, other: &ElementSpec) -> Result<ElementSpec> {
        self.try_join(other).ok_or_else(|| Error::message(format!("Incompatible dataset elements: {self} vs. {other}")))
    }

    /// True if every element of the type `other` also has this type.
    fn accepts(&self, other: &ElementSpec) -> bool {
        self.try_join(other).as_ref() == Some(self)
    }

    fn try_join(&self, other: &ElementSpec) -> Option<ElementSpec> {
        Some(match (self, other) {
            (ElementSpec::Tensor(own), ElementSpec::Tensor(theirs)) => ElementSpec::Tensor(own.join(theirs)?),
            (ElementSpec::Ragged(own), ElementSpec::Ragged(theirs)) => ElementSpec::Ragged(own.join(theirs)?),
            (ElementSpec::Strings(own), ElementSpec::Strings(theirs)) if own.len() == theirs.len() => {
                let same = |(one, other): (&Option<u32>, &Option<u32>)| if one == other { *one } else { None };
                ElementSpec::Strings(own.iter().zip(theirs).map(same).collect())
            }
            (ElementSpec::Tuple(own), ElementSpec::Tuple(theirs)) if own.len() == theirs.len() => {
                ElementSpec::Tuple(own.iter().zip(theirs).map(|(own, other)| own.try_join(other)).collect::<Option<_>>()?)
            }
            (ElementSpec::Dict(own), ElementSpec::Dict(theirs)) if own.keys().eq(theirs.keys()) => {
                let joined = own.iter().zip(theirs.values()).map(|((name, own), other)| Some((name.clone(), own.try_join(other)?)));
                ElementSpec::Dict(joined.collect::<Option<_>>()?)
            }
            (ElementSpec::Dataset(own), ElementSpec::Dataset(theirs)) => ElementSpec::Dataset(own.try_join(theirs)?.into()),
            _ => return None,
        })
    }
}

impl<T: Element> Dataset<T> {
    /// Sets the element type and checks each element against it. An error takes the place of an element that does not match.
    ///
    /// ```
    /// use gradlet::{DType, Tensor, TensorSpec, data::Dataset};
    /// let cpu = gradlet::cpu();
    /// let rows = Dataset::range(2..4).map(move |x| Tensor::full(&cpu, x, &[x as u32]));
    /// let checked = rows.ensure_spec(TensorSpec::new(DType::I64, &[Some(2)]));
    /// let error = checked.iter().nth(1).unwrap().unwrap_err();
    /// assert_eq!(error.to_string(), "stage 2 (ensure_spec), element 1: an element of i64[3] where an element of i64[2] was expected");
    /// ```
    pub fn ensure_spec(&self, spec: impl Into<ElementSpec>) -> Dataset<T> {
        let spec = spec.into();
        let wanted = spec.clone();
        let check = move |element: T| match element.spec() {
            Some(got) if !wanted.accepts(&got) => {
                Err(Error::message(format!("an element of {got} where an element of {wanted} was expected")))
            }
            _ => Ok(element),
        };
        let cardinality = self.cardinality();
        self.map_as("ensure_spec", check).with_cardinality(cardinality).with_any_spec(Some(spec))
    }
}

fn with_dims(spec: &TensorSpec, change: &mut dyn FnMut(&[Option<u32>]) -> OpenDims) -> TensorSpec {
    match spec.dims() {
        Some(dims) => TensorSpec::new(spec.dtype(), &change(dims)),
        None => spec.clone(),
    }
}

/// Formats dimensions as `[?,28]`.
pub(super) fn dims_text(dims: &[Option<u32>]) -> String {
    let dims: Vec<String> = dims.iter().map(|dim| dim.map_or("?".into(), |dim| dim.to_string())).collect();
    format!("[{}]", dims.join(","))
}

impl From<TensorSpec> for ElementSpec {
    fn from(spec: TensorSpec) -> ElementSpec {
        ElementSpec::Tensor(spec)
    }
}

impl fmt::Display for ElementSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementSpec::Tensor(spec) => write!(f, "{spec}"),
            ElementSpec::Ragged(spec) => write!(f, "ragged {spec}"),
            ElementSpec::Strings(dims) => {
                write!(f, "string{}", dims_text(dims))
            }
            ElementSpec::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
                write!(f, "({})", parts.join(", "))
            }
            ElementSpec::Dict(parts) => {
                let parts: Vec<String> = parts.iter().map(|(name, part)| format!("{name}: {part}")).collect();
                write!(f, "{{{}}}", parts.join(", "))
            }
            ElementSpec::Dataset(inner) => write!(f, "dataset of {inner}"),
        }
    }
}
