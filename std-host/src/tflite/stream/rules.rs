//! The columns that each operator needs to compute the newest column of its result.

use super::super::conv::{depthwise_options, options, pool_options};
use super::super::node::{Imported, Node};
use super::super::reduce::distinct;
use crate::formats::tflite::{
    Code, ConcatenationOptions, FullyConnectedOptions, PackOptions, ReducerOptions, StridedSliceOptions, UnpackOptions,
};
use gradlet_core::DType;
use gradlet_core::ops::conv2d::Padding;

/// Operators that compute an element from the elements at the same place.
const ELEMENTWISE: &[&str] = &[
    "ABS",
    "ADD",
    "ADD_N",
    "CAST",
    "CEIL",
    "COS",
    "DEQUANTIZE",
    "DIV",
    "ELU",
    "EQUAL",
    "EXP",
    "FLOOR",
    "FLOOR_DIV",
    "FLOOR_MOD",
    "GELU",
    "GREATER",
    "GREATER_EQUAL",
    "HARD_SWISH",
    "LEAKY_RELU",
    "LESS",
    "LESS_EQUAL",
    "LOG",
    "LOGICAL_AND",
    "LOGICAL_NOT",
    "LOGICAL_OR",
    "LOGISTIC",
    "MAXIMUM",
    "MINIMUM",
    "MUL",
    "NEG",
    "NOT_EQUAL",
    "POW",
    "PRELU",
    "QUANTIZE",
    "RELU",
    "RELU6",
    "RELU_0_TO_1",
    "RELU_N1_TO_1",
    "ROUND",
    "RSQRT",
    "SELECT_V2",
    "SIGN",
    "SIN",
    "SQRT",
    "SQUARE",
    "SQUARED_DIFFERENCE",
    "SUB",
    "TANH",
    "ZEROS_LIKE",
];

/// Operators that keep state between calls, or whose work depends on values.
const STATEFUL: &[&str] = &["ASSIGN_VARIABLE", "CALL_ONCE", "IF", "READ_VARIABLE", "SVDF", "VAR_HANDLE", "WHILE"];

/// The time axes of a subgraph's tensors, and the dimensions of the tensors for a whole window.
pub(super) struct Times {
    pub dims: Vec<Vec<u32>>,
    pub axes: Vec<Option<usize>>,
    /// True for a tensor that depends on the input.
    pub depends: Vec<bool>,
}

impl Times {
    /// Returns the time axis of a tensor.
    pub(super) fn of(&self, tensor: usize) -> Option<usize> {
        self.axes.get(tensor).copied().flatten()
    }

    pub(super) fn dims(&self, tensor: usize) -> &[u32] {
        self.dims.get(tensor).map_or(&[], Vec::as_slice)
    }

    fn dim(&self, tensor: usize, axis: usize) -> u32 {
        self.dims(tensor).get(axis).copied().unwrap_or(1)
    }

    /// True if a tensor has no time axis, but other elements in the next call. Columns that were computed with it are of no use then.
    fn changes(&self, tensor: usize) -> bool {
        self.of(tensor).is_none() && self.depends.get(tensor) == Some(&true)
    }

    /// Returns the number of columns of a tensor.
    pub(super) fn columns(&self, tensor: usize) -> u32 {
        self.of(tensor).map_or(1, |axis| self.dim(tensor, axis))
    }

    /// Sets the time axis of a tensor. One with a single column is computed whole in each call, so it has none.
    pub(super) fn set(&mut self, tensor: usize, axis: usize) {
        let several = self.dim(tensor, axis) > 1;
        self.axes.iter_mut().skip(tensor).take(1).for_each(|own| *own = several.then_some(axis));
    }

    pub(super) fn depend(&mut self, tensor: usize) {
        self.depends.iter_mut().skip(tensor).take(1).for_each(|depends| *depends = true);
    }

    /// Returns the dimensions of a tensor in a call.
    pub(super) fn in_a_call(&self, tensor: usize) -> Vec<u32> {
        let time = self.of(tensor);
        self.dims(tensor).iter().enumerate().map(|(axis, &dim)| if time == Some(axis) { 1 } else { dim }).collect()
    }
}

/// Columns of its operands from which an operator computes the newest column of its results.
pub(super) enum Rule {
    /// The newest columns. The results have this time axis.
    Column(usize),
    /// The last columns of the only operand that has any: the time axis, and their number.
    Columns(usize, u32),
    /// One column of the operand: the time axis of the result, and the number of columns after it.
    One(Option<usize>, u32),
    /// All columns. The results have no time axis.
    Whole,
}
use Rule::{Column, Columns, One, Whole};

/// Fails if an operator keeps state or has subgraphs.
pub(super) fn stateful(node: &Node<'_>) -> Imported<()> {
    match node.operator.code {
        Code::Builtin(name) if STATEFUL.contains(&name) => Err("a model with variables, branches or loops cannot be streamed".into()),
        _ => Ok(()),
    }
}

/// Returns the rule of an operator, at least one of whose operands has a time axis. The error is the reason why it cannot be streamed.
pub(super) fn rule(node: &Node<'_>, times: &Times) -> Imported<Rule> {
    let Code::Builtin(name) = node.operator.code else { return Ok(Whole) };
    let Some(view) = View::new(node, times) else { return Ok(Whole) };
    if node.operator.inputs.iter().flatten().any(|&input| times.changes(input)) {
        return Ok(Whole);
    }
    let rule = match name {
        name if ELEMENTWISE.contains(&name) => view.elementwise(),
        "CONCATENATION" => view.joined(node.options::<ConcatenationOptions<'_>>()?.axis().into(), 0),
        "PACK" => view.joined(node.options::<PackOptions<'_>>()?.axis().into(), 1),
        // The axis or the weights of other operators must be constants.
        _ if view.others || view.place != usize::from(name == "SPLIT") => Whole,
        "L2_NORMALIZATION" | "LOG_SOFTMAX" | "SOFTMAX" => {
            if view.axis + 1 < view.dims.len() {
                Column(view.axis)
            } else {
                Whole
            }
        }
        "CONV_2D" | "DEPTHWISE_CONV_2D" | "AVERAGE_POOL_2D" | "L2_POOL_2D" | "MAX_POOL_2D" => view.slid(name)?,
        "FULLY_CONNECTED" => view.dense(node.options::<FullyConnectedOptions<'_>>()?.keep_num_dims()),
        "RESHAPE" | "SQUEEZE" | "EXPAND_DIMS" => view.reshaped(view.dims, view.output).map_or(Whole, |axis| One(Some(axis), 0)),
        "TRANSPOSE" => view.position(&node.numbers(1)?),
        "MEAN" | "SUM" | "REDUCE_ALL" | "REDUCE_ANY" | "REDUCE_MAX" | "REDUCE_MIN" | "REDUCE_PROD" => {
            view.without(&distinct(node.numbers(1)?, view.dims.len()), node.options::<ReducerOptions<'_>>()?.keep_dims())
        }
        "ARG_MAX" | "ARG_MIN" => view.without(&distinct(vec![node.number(1)?], view.dims.len()), false),
        "UNPACK" => view.without(&distinct(vec![node.options::<UnpackOptions<'_>>()?.axis()], view.dims.len()), false),
        "SPLIT" => view.without(&distinct(vec![node.number(0)?], view.dims.len()), true),
        "SPLIT_V" => view.without(&distinct(vec![node.number(2)?], view.dims.len()), true),
        "PAD" | "PADV2" | "MIRROR_PAD" => view.padded(&node.numbers(1)?)?,
        "SLICE" => view.slice(),
        "STRIDED_SLICE" => view.strided_slice()?,
        _ => Whole,
    };
    Ok(view.checked(rule))
}

/// An operator whose operands have time axes.
struct View<'n, 'm> {
    node: &'n Node<'m>,
    times: &'n Times,
    /// Position, time axis and dimensions of the first operand that has a time axis.
    place: usize,
    axis: usize,
    dims: &'n [u32],
    /// Dimensions of the first result.
    output: &'n [u32],
    /// True if other operands have time axes, too.
    others: bool,
}

impl<'n, 'm> View<'n, 'm> {
    fn new(node: &'n Node<'m>, times: &'n Times) -> Option<View<'n, 'm>> {
        let inputs = node.operator.inputs.iter().enumerate();
        let mut operands = inputs.filter_map(|(place, input)| input.and_then(|input| Some((place, input, times.of(input)?))));
        let (place, first, axis) = operands.next()?;
        let (dims, output) = (times.dims(first), times.dims(*node.operator.outputs.first()?));
        Some(View { node, times, place, axis, dims, output, others: operands.next().is_some() })
    }

    fn columns(&self) -> u32 {
        self.dims.get(self.axis).copied().unwrap_or(1)
    }

    /// Returns `rule`, or the rule for all columns if the results do not have the columns that the rule assumes.
    fn checked(&self, rule: Rule) -> Rule {
        let wanted = match rule {
            Column(axis) => Some((axis, self.columns())),
            Columns(axis, count) => Some((axis, self.columns().saturating_sub(count) + 1)),
            One(..) | Whole => None,
        };
        let has = |(axis, columns)| self.node.operator.outputs.iter().all(|&output| self.times.dims(output).get(axis) == Some(&columns));
        if wanted.is_none_or(has) { rule } else { Whole }
    }

    /// Time axes of the operands, counted from the back, must be the same. Other operands must have one element along it.
    fn elementwise(&self) -> Rule {
        let back = self.dims.len() - self.axis;
        let fits = |input: usize| {
            let dims = self.times.dims(input);
            match self.times.of(input) {
                Some(axis) => dims.len() - axis == back,
                None => dims.len() < back || dims.get(dims.len() - back) == Some(&1),
            }
        };
        let fit = self.node.operator.inputs.iter().flatten().all(|&input| fits(input));
        match self.output.len().checked_sub(back) {
            Some(axis) if fit => Column(axis),
            _ => Whole,
        }
    }

    /// Joins operands along an axis, which is new if `new` is 1. All must have the same time axis.
    fn joined(&self, along: i64, new: usize) -> Rule {
        let rank = (self.dims.len() + new) as i64;
        let along = if along < 0 { along + rank } else { along } as usize;
        let same = self.node.operator.inputs.iter().flatten().all(|&input| self.times.of(input) == Some(self.axis));
        match new {
            _ if !same => Whole,
            0 if along == self.axis => Whole,
            0 => Column(self.axis),
            _ => Column(self.axis + usize::from(along <= self.axis)),
        }
    }

    /// Slides a window over the first operand.
    fn slid(&self, name: &str) -> Imported<Rule> {
        let at = match self.axis {
            0 => return Ok(Column(0)),
            1 | 2 => self.axis - 1,
            _ => return Ok(Whole),
        };
        let filter = self.node.operator.inputs.get(1).copied().flatten();
        let kernel = filter.map_or(1, |filter| self.times.dims(filter).get(self.axis).copied().unwrap_or(1));
        let (padding, strides, kernel, dilation) = match name {
            "CONV_2D" | "DEPTHWISE_CONV_2D" => {
                let (conv, _) = if name == "CONV_2D" { options(self.node)? } else { depthwise_options(self.node)? };
                (conv.padding, conv.strides, kernel, conv.dilations[at])
            }
            _ => {
                let (_, padding, strides, size) = pool_options(self.node)?;
                (padding, strides, size[at], 1)
            }
        };
        // Floats that meet weights of 8 bits get a scale that depends on the whole window.
        let hybrid =
            self.node.output_dtype(0)?.is_float() && filter.is_some() && !self.node.input(1)?.kind.dtype().is_some_and(DType::is_float);
        let (stride, span) = (strides[at], kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(1));
        let padded = padding == Padding::Same && span > 1;
        match self.output.get(self.axis) {
            _ if hybrid => Ok(Whole),
            Some(1) if padded || stride > 1 => Ok(Whole),
            _ if stride > 1 => Err(format!("its stride along the time, axis {}, is {stride}, not 1", self.axis)),
            _ if padded => Err(format!("its padding along the time, axis {}, is SAME, not VALID", self.axis)),
            _ => Ok(Columns(self.axis, span)),
        }
    }

    /// A dense layer of the last axis.
    fn dense(&self, keep: bool) -> Rule {
        let weights = self.node.operator.inputs.get(1).copied().flatten().map_or(&[][..], |weights| self.times.dims(weights));
        let Some((last, rows)) = self.dims.split_last() else { return Whole };
        match self.output.split_last() {
            _ if self.axis == rows.len() || weights.last() != Some(last) => Whole,
            _ if keep => Column(self.axis),
            Some((_, flat)) => self.reshaped(rows, flat).map_or(Whole, Column),
            None => Whole,
        }
    }

    /// Returns the axis of `to` that has the same elements as the time axis of `from`.
    fn reshaped(&self, from: &[u32], to: &[u32]) -> Option<usize> {
        let count = |dims: &[u32]| dims.iter().map(|&dim| u64::from(dim)).product::<u64>();
        let before = count(from.get(..self.axis)?);
        (0..to.len()).find(|&axis| to.get(axis) == Some(&self.columns()) && to.get(..axis).is_some_and(|dims| count(dims) == before))
    }

    fn position(&self, order: &[u32]) -> Rule {
        match order {
            [] => Column(self.axis),
            order => order.iter().position(|&axis| axis as usize == self.axis).map_or(Whole, Column),
        }
    }

    /// Computes along `axes`, which are removed unless `keep` is true.
    fn without(&self, axes: &[i32], keep: bool) -> Rule {
        let axes: Vec<usize> = axes.iter().map(|&axis| axis as usize).collect();
        match axes.contains(&self.axis) {
            true => Whole,
            false if keep => Column(self.axis),
            false => Column(self.axis - axes.iter().filter(|&&axis| axis < self.axis).count()),
        }
    }

    fn padded(&self, paddings: &[u32]) -> Imported<Rule> {
        match paddings.as_chunks().0.get(self.axis) {
            Some([0, 0]) => Ok(Column(self.axis)),
            Some([before, after]) => {
                Err(format!("it pads the time, axis {}, with {before} columns before it and {after} after it", self.axis))
            }
            None => Ok(Whole),
        }
    }

    /// A part of the window, whose last column is `end − 1`. Its other axes are whole.
    fn cut(&self, end: i64) -> Rule {
        let others = |dims: &[u32], axis: usize| -> Vec<u32> {
            dims.iter().enumerate().filter(|&(at, _)| at != axis).map(|(_, &dim)| dim).collect()
        };
        let back = i64::from(self.columns()).checked_sub(end).and_then(|back| u32::try_from(back).ok());
        let Some(back) = back.filter(|&back| back < self.columns() && !self.output.contains(&0)) else { return Whole };
        if self.output.len() == self.dims.len() && others(self.output, self.axis) == others(self.dims, self.axis) {
            return One(Some(self.axis), back);
        }
        if self.output == others(self.dims, self.axis) { One(None, back) } else { Whole }
    }

    fn slice(&self) -> Rule {
        let range = self.node.integers(1).ok().zip(self.node.integers(2).ok());
        match range.and_then(|(begin, size)| Some((*begin.get(self.axis)?, *size.get(self.axis)?))) {
            Some((_, -1)) => self.cut(self.columns().into()),
            Some((begin, size)) => begin.checked_add(size).map_or(Whole, |end| self.cut(end)),
            None => Whole,
        }
    }

    fn strided_slice(&self) -> Imported<Rule> {
        let options = self.node.options::<StridedSliceOptions<'_>>()?;
        let (begins, ends, steps) = (self.node.integers(1)?, self.node.integers(2)?, self.node.integers(3)?);
        let at = |list: &[i64]| list.get(self.axis).copied();
        let (Some(begin), Some(end), Some(1)) = (at(&begins), at(&ends), at(&steps)) else { return Ok(Whole) };
        if options.ellipsis_mask() != 0 || options.new_axis_mask() != 0 || options.offset() {
            return Ok(Whole);
        }
        let marked = |mask: i32| mask as u32 >> self.axis & 1 == 1;
        let all = i64::from(self.columns());
        let from_front = |place: i64| if place < 0 { place + all } else { place };
        Ok(self.cut(match (marked(options.shrink_axis_mask()), marked(options.end_mask())) {
            (true, _) => from_front(if marked(options.begin_mask()) { 0 } else { begin }).saturating_add(1),
            (_, true) => all,
            _ => from_front(end).min(all),
        }))
    }
}
