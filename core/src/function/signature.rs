//! The types of a function's arguments. Dimensions may be unknown.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::tensor::device::Device;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The type of an argument: TensorFlow's `TensorSpec`. A dimension may be unknown (`None`), and so may the whole shape.
///
/// ```
/// use gradlet_core::{DType, TensorSpec};
/// let images = TensorSpec::new(DType::F32, &[None, Some(28), Some(28)]).named("images");
/// assert_eq!(images.to_string(), "images: f32[?,28,28]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "tf.TensorSpec", alias = "input_signature")]
pub struct TensorSpec {
    dtype: DType,
    dims: Option<Vec<Option<u32>>>,
    name: Option<String>,
}

impl TensorSpec {
    /// Creates the type of tensors with this element type and these dimensions. `None` stands for any dimension.
    pub fn new(dtype: DType, dims: &[Option<u32>]) -> TensorSpec {
        TensorSpec { dtype, dims: Some(dims.into()), name: None }
    }

    /// Creates the type of tensors with this element type and any shape.
    pub fn any(dtype: DType) -> TensorSpec {
        TensorSpec { dtype, dims: None, name: None }
    }

    /// Sets a name for error messages and listings.
    pub fn named(self, name: &str) -> TensorSpec {
        TensorSpec { name: Some(name.into()), ..self }
    }

    /// Returns the name, if there is one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the dimensions, in which `None` stands for any dimension, or `None` if any shape is accepted.
    pub fn dims(&self) -> Option<&[Option<u32>]> {
        self.dims.as_deref()
    }

    /// True if tensors of type `tensor_type` are accepted.
    pub fn accepts(&self, tensor_type: &TensorType) -> bool {
        let fits = |dims: &Vec<Option<u32>>| {
            let got = tensor_type.shape.dims();
            dims.len() == got.len() && dims.iter().zip(got).all(|(dim, got)| dim.is_none_or(|dim| dim == *got))
        };
        self.dtype == tensor_type.dtype && self.dims.as_ref().is_none_or(fits)
    }

    /// Returns the narrowest type that accepts all tensors that either type accepts. Returns `None` if the element types differ.
    pub fn join(&self, other: &TensorSpec) -> Option<TensorSpec> {
        let same = |(one, other): (&Option<u32>, &Option<u32>)| if one == other { *one } else { None };
        let dims = match (&self.dims, &other.dims) {
            (Some(own), Some(theirs)) if own.len() == theirs.len() => Some(own.iter().zip(theirs).map(same).collect()),
            _ => None,
        };
        (self.dtype == other.dtype).then(|| TensorSpec { dims, ..self.clone() })
    }
}

impl From<TensorType> for TensorSpec {
    fn from(tensor_type: TensorType) -> TensorSpec {
        TensorSpec { dtype: tensor_type.dtype, dims: Some(tensor_type.shape.dims().iter().copied().map(Some).collect()), name: None }
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}: ")?;
        }
        let Some(dims) = &self.dims else { return write!(f, "{}[…]", self.dtype) };
        write!(f, "{}[", self.dtype)?;
        for (index, dim) in dims.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match dim {
                Some(dim) => write!(f, "{comma}{dim}")?,
                None => write!(f, "{comma}?")?,
            }
        }
        f.write_str("]")
    }
}

/// Checks the tensor types of a call of function `name`.
pub(super) fn check(name: &str, specs: &[TensorSpec], types: &[TensorType]) -> Result<()> {
    if specs.len() != types.len() {
        let wanted: Vec<String> = specs.iter().map(|spec| format!("{spec}")).collect();
        return Err(Error::message(format!("{name} takes {} tensors ({}), but got {}", specs.len(), wanted.join(", "), types.len())));
    }
    match specs.iter().zip(types).enumerate().find(|(_, (spec, got))| !spec.accepts(got)) {
        Some((index, (spec, got))) => Err(Error::message(format!("argument {index} of {name} must be {spec}, got {got}"))),
        None => Ok(()),
    }
}

/// Returns the error for an argument on another device than the function's.
pub(super) fn misplaced(name: &str, specs: &[TensorSpec], index: usize, other: &Device, own: &Device) -> Error {
    let (other, own) = (other.name(), own.name());
    let argument = specs.get(index).and_then(TensorSpec::name).map_or(String::new(), |argument| format!(" ({argument})"));
    Error::message(format!("argument {index}{argument} of {name} is on {other}, but the function runs on {own}: copy it with `to`"))
}

/// A part of the arguments that a trace depends on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ArgumentPart {
    Tensor(TensorSpec),
    Host(u64),
    /// The type of a variable, and the index of the first of the call's variables that is the same variable.
    Variable(TensorType, usize),
}

/// The arguments of one trace. Calls with matching arguments need no new trace.
pub(super) struct Trace {
    pub(super) device: Device,
    pub(super) parts: Vec<ArgumentPart>,
}

impl Trace {
    /// True if arguments with these parts match the trace.
    pub(super) fn takes(&self, device: &Device, parts: &[ArgumentPart]) -> bool {
        let fits = |(own, part): (&ArgumentPart, &ArgumentPart)| match (own, part) {
            (ArgumentPart::Tensor(spec), ArgumentPart::Tensor(other)) => spec.join(other).as_ref() == Some(spec),
            _ => own == part,
        };
        self.device.is_like(device) && self.parts.len() == parts.len() && self.parts.iter().zip(parts).all(fits)
    }

    /// Returns parts, with unknown dimensions where necessary, that match both this trace and `parts`. Returns `None` if there are
    /// none.
    pub(super) fn relaxed(&self, device: &Device, parts: &[ArgumentPart]) -> Option<Vec<ArgumentPart>> {
        let join = |(own, part): (&ArgumentPart, &ArgumentPart)| match (own, part) {
            (ArgumentPart::Tensor(spec), ArgumentPart::Tensor(other)) => spec.join(other).map(ArgumentPart::Tensor),
            _ => (own == part).then(|| part.clone()),
        };
        let same = self.device.is_like(device) && self.parts.len() == parts.len();
        same.then(|| self.parts.iter().zip(parts).map(join).collect())?
    }

    /// Returns the types of the tensors.
    pub(super) fn specs(&self) -> Vec<TensorSpec> {
        let spec = |part: &ArgumentPart| match part {
            ArgumentPart::Tensor(spec) => Some(spec.clone()),
            _ => None,
        };
        self.parts.iter().filter_map(spec).collect()
    }
}
