//! TensorFlow Lite's models: a flatbuffer with subgraphs of operators, and the constants.

mod names;
mod read;
mod schema;
#[cfg(test)]
mod tests;
pub(crate) mod write;

use names::operator_number;
pub(crate) use names::{Code, ElementType};
pub(crate) use read::read;
pub(crate) use schema::{
    AddOptions, BatchMatMulOptions, CallOnceOptions, ConcatenationOptions, Conv2DOptions, CumsumOptions, DepthToSpaceOptions,
    DepthwiseConv2DOptions, DivOptions, FullyConnectedOptions, GatherOptions, GeluOptions, IfOptions, LeakyReluOptions, MirrorPadOptions,
    MulOptions, OneHotOptions, Options, OptionsTable, PackOptions, Pool2DOptions, ReducerOptions, ReshapeOptions, ResizeBilinearOptions,
    ResizeNearestNeighborOptions, SequenceRnnOptions, SoftmaxOptions, SpaceToDepthOptions, SqueezeOptions, StridedSliceOptions, SubOptions,
    SvdfOptions, TransposeConvOptions, UnidirectionalSequenceLstmOptions, UnpackOptions, VarHandleOptions, WhileOptions,
};

use std::fmt;

/// A checked model, which borrows its texts and constants from the file.
///
/// Every index of a tensor or subgraph is in range, and every constant has the size of its type.
#[derive(Debug)]
pub(crate) struct Model<'a> {
    pub description: &'a str,
    /// The first one is the main one.
    pub subgraphs: Vec<Subgraph<'a>>,
    pub signatures: Vec<Signature<'a>>,
    /// Errors of the file that do not change its meaning.
    pub warnings: Vec<String>,
}

/// Operators on tensors, in the order of execution.
#[derive(Debug)]
pub(crate) struct Subgraph<'a> {
    pub name: &'a str,
    pub tensors: Vec<Tensor<'a>>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    pub operators: Vec<Operator<'a>>,
}

/// A value of a subgraph: a constant, an input, or the result of an operator.
#[derive(Debug)]
pub(crate) struct Tensor<'a> {
    pub name: &'a str,
    pub kind: ElementType,
    /// Dimensions, with 1 for those that depend on the input.
    pub dims: Vec<u32>,
    /// Dimensions with `None` for those that depend on the input. If it is empty, none does.
    pub signature: Vec<Option<u32>>,
    /// Bytes of a constant: row-major, little-endian.
    pub data: Option<&'a [u8]>,
    pub quantization: Option<Quantization>,
    /// A state that an operator changes.
    pub is_variable: bool,
}

impl<'a> Tensor<'a> {
    /// Returns the bytes of a constant. A tensor without elements is one, because the format stores nothing for it.
    pub(crate) fn constant(&self) -> Option<&'a [u8]> {
        self.data.or_else(|| self.dims.contains(&0).then_some(&[]))
    }
}

/// Quantization of a tensor: an element `q` stands for `scale · (q − zero point)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantization {
    /// One scale, or one for each index of `axis`. All are finite and positive.
    pub scales: Vec<f32>,
    /// As many as scales.
    pub zero_points: Vec<i64>,
    /// Axis of the scales. It is 0 if there is one scale.
    pub axis: usize,
}

/// An operator with the indices of its tensors.
#[derive(Debug)]
pub(crate) struct Operator<'a> {
    pub code: Code<'a>,
    #[allow(dead_code)]
    pub version: i32,
    /// `None` stands for an optional input that is missing.
    pub inputs: Vec<Option<usize>>,
    pub outputs: Vec<usize>,
    /// Tensors inside the operator, which only have a type.
    #[allow(dead_code)]
    pub intermediates: Vec<Option<usize>>,
    options: Option<Options<'a>>,
}

impl<'a> Operator<'a> {
    /// Returns the options, with all defaults if the operator has none, or `None` if its options are those of another operator.
    pub(crate) fn options<T: OptionsTable<'a>>(&self) -> Option<T> {
        self.options.map_or_else(|| Some(T::defaults()), Options::get)
    }
}

/// A named function of the model: names for inputs and outputs of a subgraph.
#[derive(Debug)]
pub(crate) struct Signature<'a> {
    pub key: &'a str,
    pub subgraph: usize,
    pub inputs: Vec<(&'a str, usize)>,
    pub outputs: Vec<(&'a str, usize)>,
}

/// Place in a model, for errors: `subgraph 0 "main"`, with the number and name of a tensor or operator.
pub(crate) struct Place<'a>(pub &'static str, pub usize, pub &'a dyn fmt::Display);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place(what, index, name) = self;
        match name.to_string().as_str() {
            "" => write!(f, "{what} {index}"),
            name => write!(f, "{what} {index} ({name})"),
        }
    }
}
