//! An operator as the importers see it: its options, its constants, and the types of its tensors.

use super::Unsupported;
use super::plan::Inputs;
use crate::formats::tflite::{
    CallOnceOptions, IfOptions, Model, Operator, OptionsTable, Place, Subgraph, Tensor as Described, WhileOptions,
};
use gradlet_core::ops::conv2d::Padding;
use gradlet_core::tensor::MAX_RANK;
use gradlet_core::{DType, Result, Tensor};

/// Emits the outputs of an operator.
pub(super) type Emit<'m> = Box<dyn Fn(&Inputs<'_, '_, 'm>) -> Result<Vec<Tensor>> + 'm>;

/// Result whose error is the reason why an operator cannot be imported.
pub(super) type Imported<T> = std::result::Result<T, String>;

/// An operator and the subgraph around it.
#[derive(Clone, Copy)]
pub(super) struct Node<'m> {
    pub model: &'m Model<'m>,
    pub graph: &'m Subgraph<'m>,
    pub subgraph: usize,
    pub operator: &'m Operator<'m>,
}

impl<'m> Node<'m> {
    /// Returns the options.
    pub(super) fn options<T: OptionsTable<'m>>(&self) -> Imported<T> {
        self.operator.options().ok_or_else(|| "it has the options of another operator".into())
    }

    /// Returns the refusal of the operator, which is number `at` of its subgraph.
    pub(super) fn refused(&self, at: usize, reason: String) -> Unsupported {
        Unsupported { subgraph: self.subgraph, operator: at, name: self.operator.code.to_string(), reason }
    }

    /// Returns the description of an input, or `None` if it is missing.
    pub(super) fn optional(&self, at: usize) -> Option<&'m Described<'m>> {
        self.operator.inputs.get(at).copied().flatten().and_then(|index| self.graph.tensors.get(index))
    }

    /// Returns the description of an input.
    pub(super) fn input(&self, at: usize) -> Imported<&'m Described<'m>> {
        self.optional(at).ok_or_else(|| format!("its input {at} is missing"))
    }

    /// Returns the description of an output.
    pub(super) fn output(&self, at: usize) -> Imported<&'m Described<'m>> {
        let index = self.operator.outputs.get(at);
        index.and_then(|&index| self.graph.tensors.get(index)).ok_or_else(|| format!("its output {at} is missing"))
    }

    /// Returns the descriptions of all inputs that are not missing, and of all outputs.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &'m Described<'m>> + use<'m> {
        let graph = self.graph;
        let indices = self.operator.inputs.iter().flatten().chain(&self.operator.outputs);
        indices.filter_map(|&index| graph.tensors.get(index))
    }

    /// Returns the element type of an output.
    pub(super) fn output_dtype(&self, at: usize) -> Imported<DType> {
        let kind = self.output(at)?.kind;
        kind.dtype().ok_or_else(|| format!("its output {at} is {kind}, which gradlet does not have"))
    }

    /// Returns the bytes of an input that must be a constant, and a function that makes a reason of a text about it.
    fn constant(&self, at: usize) -> Imported<(DType, &'m [u8], impl Fn(&str) -> String + use<'m>)> {
        let tensor = self.input(at)?;
        let index = self.operator.inputs.get(at).copied().flatten().unwrap_or_default();
        let wrong = move |what: &str| format!("its input {at}, {}, {what}", Place("tensor", index, &tensor.name));
        let data = tensor.constant().filter(|_| !self.graph.inputs.contains(&index)).ok_or_else(|| wrong("is not a constant"))?;
        let dtype = tensor.kind.dtype().ok_or_else(|| wrong(&format!("is {}", tensor.kind)))?;
        Ok((dtype, data, wrong))
    }

    /// Returns the elements of an input that must be a constant list of integers, or a scalar. The list may have a number for each output,
    /// or a few for each axis of a tensor.
    pub(super) fn integers(&self, at: usize) -> Imported<Vec<i64>> {
        let (dtype, data, wrong) = self.constant(at)?;
        let most = 2 * MAX_RANK + self.operator.outputs.len();
        if data.len() / dtype.size() > most {
            return Err(wrong(&format!("has {} elements, but at most {most} are expected", data.len() / dtype.size())));
        }
        Ok(match dtype {
            DType::I32 => data.as_chunks().0.iter().map(|&bytes| i32::from_le_bytes(bytes).into()).collect(),
            DType::I64 => data.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect(),
            _ => return Err(wrong(&format!("is {dtype}, not i32 or i64"))),
        })
    }

    /// Returns the only element of an input that must be a constant.
    pub(super) fn real(&self, at: usize) -> Imported<f64> {
        let (dtype, data, wrong) = self.constant(at)?;
        let number = match dtype {
            DType::F32 => data.try_into().ok().map(|bytes| f32::from_le_bytes(bytes).into()),
            DType::F64 => data.try_into().ok().map(f64::from_le_bytes),
            DType::I8 => data.try_into().ok().map(|bytes| i8::from_le_bytes(bytes).into()),
            DType::U8 => data.try_into().ok().map(|bytes| u8::from_le_bytes(bytes).into()),
            DType::I16 => data.try_into().ok().map(|bytes| i16::from_le_bytes(bytes).into()),
            DType::I32 => data.try_into().ok().map(|bytes| i32::from_le_bytes(bytes).into()),
            DType::I64 => data.try_into().ok().map(|bytes| i64::from_le_bytes(bytes) as f64),
            _ => None,
        };
        number.ok_or_else(|| wrong(&format!("is not one number, but {dtype} of {} bytes", data.len())))
    }

    /// Returns the elements of an input like [`Node::integers`], all of which must be numbers of type `T`.
    pub(super) fn numbers<T: TryFrom<i64>>(&self, at: usize) -> Imported<Vec<T>> {
        let number = |number: i64| T::try_from(number).map_err(|_| format!("its input {at} has the element {number}"));
        self.integers(at)?.into_iter().map(number).collect()
    }

    /// Returns the only element of an input like [`Node::numbers`].
    pub(super) fn number<T: TryFrom<i64>>(&self, at: usize) -> Imported<T> {
        let mut numbers = self.numbers(at)?;
        let count = numbers.len();
        numbers.pop().filter(|_| count == 1).ok_or_else(|| format!("its input {at} has {count} elements, not one"))
    }

    /// Returns the subgraphs that the operator calls.
    pub(super) fn callees(&self) -> Imported<Vec<usize>> {
        let callees = match self.operator.code.to_string().as_str() {
            "IF" => self.options::<IfOptions<'_>>().map(|options| vec![options.then_subgraph_index(), options.else_subgraph_index()])?,
            "WHILE" => {
                self.options::<WhileOptions<'_>>().map(|options| vec![options.cond_subgraph_index(), options.body_subgraph_index()])?
            }
            "CALL_ONCE" => vec![self.options::<CallOnceOptions<'_>>()?.init_subgraph_index()],
            _ => Vec::new(),
        };
        callees.into_iter().map(|callee| self.callee(callee)).collect()
    }

    /// Checks the number of a subgraph.
    pub(super) fn callee(&self, index: i32) -> Imported<usize> {
        let count = self.model.subgraphs.len();
        let found = usize::try_from(index).ok().filter(|&index| index < count);
        found.ok_or_else(|| format!("it calls subgraph {index}, but there are {count}"))
    }
}

/// Returns the emitter of an operator with one output.
pub(super) fn one<'m>(emit: impl Fn(&Inputs<'_, '_, 'm>) -> Result<Tensor> + 'm) -> Imported<Emit<'m>> {
    Ok(Box::new(move |inputs| Ok(vec![emit(inputs)?])))
}

/// Returns the emitter of an operator with any number of outputs.
pub(super) fn many<'m>(emit: impl Fn(&Inputs<'_, '_, 'm>) -> Result<Vec<Tensor>> + 'm) -> Imported<Emit<'m>> {
    Ok(Box::new(emit))
}

/// A function that an operator applies to its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    None,
    Relu,
    Relu0To1,
    ReluN1To1,
    Relu6,
    Tanh,
}

impl Activation {
    /// Reads an activation as the schema numbers it.
    pub(super) fn new(number: i8) -> Imported<Activation> {
        Ok(match number {
            0 => Activation::None,
            1 => Activation::Relu,
            2 => Activation::ReluN1To1,
            3 => Activation::Relu6,
            4 => Activation::Tanh,
            5 => return Err("its activation is SIGN_BIT".into()),
            _ => return Err(format!("its activation has the number {number}")),
        })
    }

    pub(super) fn apply(self, x: Tensor) -> Result<Tensor> {
        match self {
            Activation::None => Ok(x),
            Activation::Relu if x.dtype().is_float() => x.relu(),
            Activation::Relu => x.maximum(&x.like(0.0)?),
            Activation::Relu0To1 => x.clip_by_value(0.0, 1.0),
            Activation::ReluN1To1 => x.clip_by_value(-1.0, 1.0),
            Activation::Relu6 if x.dtype().is_float() => x.relu6(),
            Activation::Relu6 => x.clip_by_value(0.0, 6.0),
            Activation::Tanh => x.tanh(),
        }
    }
}

/// Reads a padding as the schema numbers it.
pub(super) fn padding(number: i8) -> Imported<Padding> {
    match number {
        0 => Ok(Padding::Same),
        1 => Ok(Padding::Valid),
        _ => Err(format!("its padding has the number {number}")),
    }
}

/// Checks options that must be positive, such as strides.
pub(super) fn positive(what: &str, numbers: [i32; 2]) -> Imported<[u32; 2]> {
    match numbers.map(u32::try_from) {
        [Ok(height @ 1..), Ok(width @ 1..)] => Ok([height, width]),
        _ => Err(format!("its {what} are {numbers:?}")),
    }
}
