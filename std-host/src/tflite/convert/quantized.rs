//! Operators on quantized tensors.
//!
//! An op has its scales as fixed-point numbers in its attributes, an operator has them in the types of its tensors. Each conversion
//! therefore emits gradlet's op for the scales of the tensors, and fails unless it is the op of the node: the file has the op's bits.

use super::arrays::{attributes, keeping};
use super::emitter::{Converted, Emitter};
use super::windows::{convolution, depthwise, fully_connected, padded, pooling, products};
use crate::formats::tflite::ElementType;
use crate::formats::tflite::write::{Field, Options};
use gradlet_core::custom_op::read_attributes;
use gradlet_core::function::graph::{Graph, Node};
use gradlet_core::ops::conv2d::{Attributes as Window, Conv2DOptions};
use gradlet_core::ops::quantized_resize_bilinear::Centres;
use gradlet_core::ops::{self, Multiplier, PairQuantization, Requantization, tables};
use gradlet_core::tensor::AffineQuantization;
use gradlet_core::{DType, Eager, Function, Quantization, Result, Scope, Tensor};

/// Fails unless `emit`, called with the first `count` operands of the node, emits the node's op.
fn check(of: &Graph, node: &Node, count: usize, emit: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static) -> Converted<()> {
    let wrong = |error: gradlet_core::Error| error.to_string();
    let operands = node.inputs.iter().take(count).map(|&id| Tensor::symbolic(of.values[id].tensor_type)).collect::<Vec<Tensor>>();
    let scope = Eager::new(&ops::portable_cpu());
    let emitted = Function::new(move |_: &dyn Scope, operands: Vec<Tensor>| emit(&operands)).concrete(&scope, &operands).map_err(wrong)?;
    let graph = emitted.traced();
    let other = graph.nodes.last().ok_or("it changes nothing at the scales of its operand and its result")?;
    let constants = |at: usize| other.inputs.get(at).and_then(|&id| graph.constant(id)).zip(of.constant(node.inputs[at]));
    let same = |at: usize| constants(at).is_none_or(|(one, other)| one.bytes().ok() == other.bytes().ok());
    if other.op.def.code == node.op.def.code && other.attributes == node.attributes && (count..node.inputs.len()).all(same) {
        return Ok(());
    }
    Err("its multipliers are not those of the scales of its operands and its result, from which an operator computes its own".into())
}

/// Returns the activation of an operator that leaves the elements from `least` to `greatest`, and whether it leaves exactly these.
fn activation(dtype: DType, scale: Quantization, [least, greatest]: [i32; 2]) -> (i8, bool) {
    let (lowest, highest) = match dtype {
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        _ => (i8::MIN.into(), i8::MAX.into()),
    };
    let nearest = |real: f32| scale.nearest(real).clamp(lowest, highest);
    let all = [(0, lowest, highest), (1, nearest(0.0), highest), (3, nearest(0.0), nearest(6.0)), (2, nearest(-1.0), nearest(1.0))];
    let found = all.iter().find(|&&(_, from, to)| (from, to) == (least, greatest));
    found.map_or((0, false), |&(number, ..)| (number, true))
}

/// Adds an operator whose results are from `least` to `greatest`: by its activation, or by operators after it.
fn limited(
    to: &mut Emitter<'_>,
    node: &Node,
    (name, inputs): (&'static str, &[i32]),
    (key, mut fields, slot): (u8, Vec<(u16, Field)>, u16),
    range: [i32; 2],
) -> Converted<()> {
    let y = node.outputs[0];
    let (kind, scale) = (to.kind(y), to.scale(y)?);
    let (number, exact) = activation(kind.dtype, scale, range);
    if number != 0 {
        fields.push((slot, Field::I8(number)));
    }
    if exact {
        let y = to.result(y)?;
        to.operator(name, inputs, &[y], Some((key, fields)));
        return Ok(());
    }
    let stages = [to.temporary(kind, Some(scale.into()))?, to.temporary(kind, Some(scale.into()))?];
    to.operator(name, inputs, &[stages[0]], Some((key, fields)));
    let [least, greatest] = range;
    for (from, number, made, extreme) in [(stages[0], least, Some(stages[1]), "MAXIMUM"), (stages[1], greatest, None, "MINIMUM")] {
        let limit = Tensor::scalar(&ops::portable_cpu(), number).cast(kind.dtype).map_err(|error| error.to_string())?;
        let limit = to.constant(&limit, Some(scale.into()))?;
        let result = made.map_or_else(|| to.result(y), Ok)?;
        to.operator(extreme, &[from, limit], &[result], None);
    }
    Ok(())
}

pub(super) fn quantize(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let ops::quantize::Attributes { scale, zero_point, .. } = attributes(node)?;
    to.set_scale(node.outputs[0], Quantization { scale, zero_point })?;
    to.same(node, "QUANTIZE", None)
}

pub(super) fn dequantize(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let ops::quantize::Attributes { scale, zero_point, .. } = attributes(node)?;
    to.set_scale(node.inputs[0], Quantization { scale, zero_point })?;
    to.same(node, "DEQUANTIZE", None)
}

pub(super) fn requantize(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (x, y) = (node.inputs[0], node.outputs[0]);
    let (from, into, dtype) = (to.scale(x)?, to.scale(y)?, to.kind(y).dtype);
    check(to.source, node, 1, move |operands| operands[0].requantize(from, dtype, into))?;
    to.same(node, "QUANTIZE", None)
}

/// An op on two tensors: its emission, and the name and the number of the options of its operator.
type Pair = (fn(&Tensor, &Tensor, &PairQuantization) -> Result<Tensor>, &'static str, u8);

/// Returns the real number of a multiplier. It has 31 bits, and so determines the 24 bits of a scale.
fn real(Multiplier { value, exponent }: Multiplier) -> f64 {
    f64::from(value) * f64::from(exponent - 31).exp2()
}

/// Returns the scales of an op on two tensors. Its attributes begin with the zero points of both, and the zero point and the range of the
/// result. `other` returns the scale of an operand from those of the other operand and of the result. A constant needs it.
fn scaling(to: &Emitter<'_>, node: &Node, other: impl Fn(f64, f64, usize) -> f64) -> Converted<(PairQuantization, [i32; 2])> {
    let &[left_zero, right_zero, _, least, greatest, ..] = node.attributes.as_slice() else { return Err("it has no range".into()) };
    let range = [least as i32, greatest as i32];
    let output = to.scale(node.outputs[0])?;
    let scale = |at: usize, zero_point: u32| {
        let (own, known) = (to.scale(node.inputs[at]), node.inputs[1 - at]);
        if own.is_ok() || to.source.constant(node.inputs[at]).is_none() {
            return own;
        }
        let scale = other(to.scale(known)?.scale.into(), output.scale.into(), at) as f32;
        Ok(Quantization { scale, zero_point: zero_point as i32 })
    };
    let (left, right) = (scale(0, left_zero)?, scale(1, right_zero)?);
    let scaling = PairQuantization { left, right, output, range: Some(range.into()) };
    Ok((scaling, range))
}

/// Returns the tensors of both operands.
fn operands(to: &mut Emitter<'_>, node: &Node, scaling: &PairQuantization) -> Converted<[i32; 2]> {
    Ok([to.tensor_with(node.inputs[0], Some(scaling.left))?, to.tensor_with(node.inputs[1], Some(scaling.right))?])
}

fn pair(to: &mut Emitter<'_>, node: &Node, (emit, name, key): Pair, other: impl Fn(f64, f64, usize) -> f64) -> Converted<()> {
    let (scaling, range) = scaling(to, node, other)?;
    check(to.source, node, 2, move |operands| emit(&operands[0], &operands[1], &scaling))?;
    let inputs = operands(to, node, &scaling)?;
    // Scales that are powers of two are numbers like others.
    let fields = if matches!(name, "ADD" | "SUB") { vec![(1, Field::Bool(false))] } else { Vec::new() };
    limited(to, node, (name, &inputs), (key, fields, 0), range)
}

pub(super) fn add(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let ops::quantized_add::Attributes { operands, subtract, .. } = attributes(node)?;
    // The multipliers of the operands have the ratio of their scales.
    let other = move |known: f64, _: f64, at: usize| known * real(operands[at]) / real(operands[1 - at]);
    match subtract {
        0 => pair(to, node, (Tensor::quantized_add, "ADD", 11), other),
        _ => pair(to, node, (Tensor::quantized_sub, "SUB", 28), other),
    }
}

pub(super) fn mul(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let ops::quantized_mul::Attributes { multiplier, .. } = attributes(node)?;
    pair(to, node, (Tensor::quantized_mul, "MUL", 21), move |known, output, _| real(multiplier) * output / known)
}

pub(super) fn squared_difference(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let ops::quantized_squared_difference::Attributes { operands: multipliers, .. } = attributes(node)?;
    let (scaling, range) = scaling(to, node, move |known, _, at| known * real(multipliers[at]) / real(multipliers[1 - at]))?;
    check(to.source, node, 2, move |operands| operands[0].quantized_squared_difference(&operands[1], &scaling))?;
    if activation(DType::I8, scaling.output, range) != (0, true) {
        return Err("its results are clamped to a range, but its operator has no activation".into());
    }
    let (inputs, y) = (operands(to, node, &scaling)?, to.result(node.outputs[0])?);
    to.operator("SQUARED_DIFFERENCE", &inputs, &[y], None);
    Ok(())
}

pub(super) fn matmul(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let ops::quantized_matmul::Attributes { transposed, multiplier, .. } = attributes(node)?;
    let (scaling, range) = scaling(to, node, move |known, output, _| real(multiplier) * output / known)?;
    let [left, right] = transposed.map(|transposed| transposed == 1);
    check(to.source, node, 2, move |operands| operands[0].quantized_matmul(&operands[1], left, right, &scaling))?;
    if activation(to.kind(node.outputs[0]).dtype, scaling.output, range) != (0, true) {
        return Err("its results are clamped to a range, but its operator has no activation".into());
    }
    let (inputs, y) = (operands(to, node, &scaling)?, to.result(node.outputs[0])?);
    to.operator("BATCH_MATMUL", &inputs, &[y], products(transposed));
    Ok(())
}

/// Scales of an op with weights.
struct Weighted {
    input: Quantization,
    filter: Vec<f32>,
    output: Quantization,
    range: [i32; 2],
}

impl Weighted {
    /// Returns the scales of a node whose multipliers are operand 3, and whose range is the last two attribute words.
    fn new(to: &Emitter<'_>, node: &Node) -> Converted<Weighted> {
        let (input, output) = (to.scale(node.inputs[0])?, to.scale(node.outputs[0])?);
        let words = to.known(node, 3)?.to_vec::<i32>().map_err(|error| error.to_string())?;
        let ratio = f64::from(output.scale) / f64::from(input.scale);
        // A channel whose multiplier is 0 has a scale, too.
        let scale = |&[value, exponent]: &[i32; 2]| ((real(Multiplier { value, exponent }) * ratio) as f32).max(f32::MIN_POSITIVE);
        let filter: Vec<f32> = words.as_chunks().0.iter().map(scale).collect();
        let range = node.attributes.last_chunk::<2>().ok_or("it has no range")?.map(|word| word as i32);
        Ok(Weighted { input, filter, output, range })
    }

    /// Returns the scales as the op takes them.
    fn scaling(&self) -> Requantization<'_> {
        Requantization { input: self.input, filter: &self.filter, output: self.output, range: Some(self.range.into()) }
    }

    /// Adds the filter, whose channels are along `axis`, and the bias.
    fn weights(&self, to: &mut Emitter<'_>, node: &Node, axis: u32) -> Converted<[i32; 2]> {
        let scales = |scales: Vec<f32>, axis| {
            let zero_points = vec![0; scales.len()];
            Some(AffineQuantization { axis: if scales.len() == 1 { 0 } else { axis }, scales, zero_points })
        };
        let of_bias = self.filter.iter().map(|scale| (self.input.scale * scale).max(f32::MIN_POSITIVE)).collect();
        let filter = match to.source.constant(node.inputs[1]) {
            Some(filter) => to.constant(filter, scales(self.filter.clone(), axis))?,
            None => return Err("its filter is computed, but must be a constant".into()),
        };
        Ok([filter, to.constant(to.known(node, 2)?, scales(of_bias, 0))?])
    }
}

/// Returns the type of the bias of a node, if it has 32 bits where 64 are usual.
fn narrow_bias(to: &Emitter<'_>, node: &Node) -> Option<Field> {
    let is = |at: usize, dtype: DType| to.kind(node.inputs[at]).dtype == dtype;
    (is(0, DType::I16) && is(2, DType::I32)).then(|| Field::I8(ElementType::from(DType::I32).0))
}

/// Adds a convolution. The filter is `[co,kh,kw,ci]`, or `[1,kh,kw,c·m]` if it is depthwise.
pub(super) fn conv2d(to: &mut Emitter<'_>, node: &Node, by_channel: bool) -> Converted<()> {
    let scales = Weighted::new(to, node)?;
    let words = node.attributes.get(..9).ok_or("it has no window")?;
    let window: Window = read_attributes(words).map_err(|error| error.to_string())?;
    let weights = scales.weights(to, node, if by_channel { 3 } else { 0 })?;
    let (range, conv) = (scales.range, Conv2DOptions::from(window));
    check(to.source, node, 3, move |operands| match operands {
        [x, filter, bias] if by_channel => x.quantized_depthwise_conv2d(filter, bias, &conv, &scales.scaling()),
        [x, filter, bias, ..] => x.quantized_conv2d(filter, bias, &conv, &scales.scaling()),
        _ => Err(gradlet_core::Error::Arity { got: operands.len() as u8 }),
    })?;
    let (x, channels) = (padded(to, node.inputs[0], &window)?, to.dims(node.inputs[0]).last().copied().unwrap_or(1));
    let filters = to.dims(node.outputs[0]).last().copied().unwrap_or(0);
    let narrow = narrow_bias(to, node);
    let (name, slot, options) = match by_channel {
        true if narrow.is_some() => return Err("it has int16 images with a bias of 32 bits, but DEPTHWISE_CONV_2D needs 64".into()),
        true => ("DEPTHWISE_CONV_2D", 4, depthwise(&window, filters.checked_div(channels).unwrap_or(1))),
        false => ("CONV_2D", 3, convolution(&window)),
    };
    let (key, mut fields) = options.unwrap_or_default();
    fields.extend(narrow.map(|kind| (6, kind)));
    limited(to, node, (name, &[x, weights[0], weights[1]]), (key, fields, slot), range)
}

pub(super) fn dense(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let scales = Weighted::new(to, node)?;
    let ops::quantized_dense::Attributes { roundings, .. } = attributes(node)?;
    if roundings != 1 {
        return Err("it rounds twice, as TensorFlow Lite Micro does: import the model with the rounding of TensorFlow".into());
    }
    let (x, weights, rank) = (to.tensor(node.inputs[0])?, scales.weights(to, node, 0)?, to.dims(node.outputs[0]).len());
    let range = scales.range;
    check(to.source, node, 3, move |operands| operands[0].quantized_dense(&operands[1], &operands[2], &scales.scaling(), false))?;
    let (key, mut fields) = fully_connected(rank).unwrap_or_default();
    fields.extend(narrow_bias(to, node).map(|kind| (4, kind)));
    limited(to, node, ("FULLY_CONNECTED", &[x, weights[0], weights[1]]), (key, fields, 0), range)
}

pub(super) fn avg_pool2d(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let ops::quantized_avg_pool2d::Attributes { window, range } = attributes(node)?;
    if to.scale(node.inputs[0])? != to.scale(node.outputs[0])? {
        return Err("its operand and its result have different scales".into());
    }
    let x = to.tensor(node.inputs[0])?;
    limited(to, node, ("AVERAGE_POOL_2D", &[x]), (5, pooling(&window), 5), range)
}

/// A reduction over axes, from one scale to another.
type Reduce = fn(&Tensor, &[i32], bool, Quantization, Quantization) -> Result<Tensor>;

/// Adds a mean or a sum. The attributes end with `[keepdims, axis…]`.
pub(super) fn mean(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (x, y) = (node.inputs[0], node.outputs[0]);
    let (from, into) = (to.scale(x)?, to.scale(y)?);
    let (keep, axes) = node.attributes.get(4..).and_then(<[u32]>::split_first).ok_or("it has no axes")?;
    let (keep, list) = (*keep == 1, axes.iter().map(|&axis| axis as i32).collect::<Vec<i32>>());
    let both: [(&str, Reduce); 2] = [("MEAN", Tensor::quantized_mean), ("SUM", Tensor::quantized_sum)];
    let mut reason = Ok(());
    for (name, emit) in both {
        let of = list.clone();
        reason = check(to.source, node, 1, move |operands| emit(&operands[0], &of, keep, from, into));
        if reason.is_ok() {
            let axes = to.list(&list)?;
            return to.with(node, name, &[axes], keeping(keep));
        }
    }
    reason
}

/// Scale of int8 scores up to which TensorFlow Lite's reference kernel aborts: 2⁻²⁶.
const LEAST_SOFTMAX_SCALE: f32 = 1.0 / (1 << 26) as f32;

pub(super) fn softmax(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let from = to.scale(node.inputs[0])?;
    check(to.source, node, 1, move |operands| operands[0].quantized_softmax(from, 1.0))?;
    if to.kind(node.inputs[0]).dtype == DType::I8 && from.scale <= LEAST_SOFTMAX_SCALE {
        return Err(format!("the kernels of TensorFlow Lite abort for its operand's scale, {}: all scores are equal", from.scale));
    }
    let scale = match to.kind(node.outputs[0]).dtype {
        DType::I16 => Quantization { scale: 1.0 / 32768.0, zero_point: 0 },
        _ => Quantization { scale: 1.0 / 256.0, zero_point: -128 },
    };
    to.set_scale(node.outputs[0], scale)?;
    to.with(node, "SOFTMAX", &[], Some((9, vec![(0, Field::F32(1.0))])))
}

/// A function of a tensor and its scale.
type Scaled = fn(&Tensor, Quantization) -> Result<Tensor>;

/// Adds an operator that computes with the scale of its operand, and whose results have a fixed one.
fn fixed(to: &mut Emitter<'_>, node: &Node, (emit, name): (Scaled, &'static str), scale: f32, options: Options) -> Converted<()> {
    let from = to.scale(node.inputs[0])?;
    check(to.source, node, 1, move |operands| emit(&operands[0], from))?;
    to.set_scale(node.outputs[0], Quantization { scale, zero_point: 0 })?;
    to.with(node, name, &[], options)
}

pub(super) fn l2_normalize(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    fixed(to, node, (Tensor::quantized_l2_normalize, "L2_NORMALIZATION"), 1.0 / 128.0, Some((12, Vec::new())))
}

/// Adds a logistic function or a hyperbolic tangent of int16.
pub(super) fn sigmoid(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    match attributes::<ops::quantized_sigmoid::Attributes>(node)?.tangent {
        0 => fixed(to, node, (Tensor::quantized_sigmoid, "LOGISTIC"), 1.0 / 32768.0, None),
        _ => fixed(to, node, (Tensor::quantized_tanh, "TANH"), 1.0 / 32768.0, None),
    }
}

pub(super) fn resize_bilinear(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let ops::quantized_resize_bilinear::Attributes { size, centres } = attributes(node)?;
    let flags = [(2, Centres::Corners), (3, Centres::Half)].map(|(slot, kind)| (slot, Field::Bool(centres == kind as u32)));
    let size = to.shape(&size)?;
    to.with(node, "RESIZE_BILINEAR", &[size], Some((15, flags.to_vec())))
}

/// An operator that the kernels of TensorFlow Lite compute with a table.
struct TableOperator {
    name: &'static str,
    /// The number of the options, and their flag.
    options: Option<(u8, bool)>,
    /// The scale and zero point that its results of int8 must have.
    scale: Option<(f32, i32)>,
    /// The table for int8.
    table: fn(Quantization, Quantization) -> tables::Table,
    /// The function whose table it is for int16. It also knows the scale of the result.
    function: Option<fn(f32, Quantization) -> f32>,
}

impl TableOperator {
    const fn new(name: &'static str, table: fn(Quantization, Quantization) -> tables::Table) -> TableOperator {
        TableOperator { name, options: None, scale: None, table, function: None }
    }
}

static FUNCTIONS: &[TableOperator] = &[
    TableOperator { scale: Some((1.0 / 256.0, -128)), ..TableOperator::new("LOGISTIC", tables::sigmoid) },
    TableOperator { scale: Some((1.0 / 128.0, 0)), ..TableOperator::new("TANH", tables::tanh) },
    TableOperator::new("HARD_SWISH", tables::hard_swish),
    TableOperator::new("ELU", |x, y| tables::function(x, y, tables::elu)),
    TableOperator { function: Some(|x, _| tables::exp(x)), ..TableOperator::new("EXP", |x, y| tables::function(x, y, tables::exp)) },
    TableOperator {
        options: Some((116, false)),
        function: Some(|x, _| tables::gelu(x, false)),
        ..TableOperator::new("GELU", |x, y| tables::function(x, y, |x| tables::gelu(x, false)))
    },
    TableOperator {
        options: Some((116, true)),
        function: Some(|x, _| tables::gelu(x, true)),
        ..TableOperator::new("GELU", |x, y| tables::function(x, y, |x| tables::gelu(x, true)))
    },
];

/// Adds a table: as the operator whose table it is, or as the choice of elements by their index.
pub(super) fn lookup(to: &mut Emitter<'_>, node: &Node) -> Converted<()> {
    let (x, y, table) = (node.inputs[0], node.outputs[0], to.known(node, 1)?);
    let (from, dtype) = (to.kind(x), to.kind(y).dtype);
    let known = to.scale(x).ok().zip(to.scale(y).ok());
    let same = |function: &&TableOperator, (x, y): (Quantization, Quantization)| match (from.dtype, dtype) {
        (DType::I8, DType::I8) => table.to_vec::<i8>().is_ok_and(|table| (function.table)(x, y)[..] == table[..]),
        (DType::I16, DType::I16) => {
            let wide = function.function.map(|function| tables::wide_function(x.scale, y.scale, |x| function(x, y)));
            wide.is_some_and(|wide| table.to_vec::<i16>().is_ok_and(|table| wide[..] == table[..]))
        }
        _ => false,
    };
    let fits = |function: &&TableOperator, y: Quantization| {
        function.scale.is_none_or(|(scale, zero_point)| y == Quantization { scale, zero_point })
    };
    if let Some(scales) = known
        && let Some(function) = FUNCTIONS.iter().find(|function| fits(function, scales.1) && same(function, scales))
    {
        let options = function.options.map(|(key, approximate)| (key, vec![(0, Field::Bool(approximate))]));
        return to.with(node, function.name, &[], options);
    }
    if from.dtype == DType::I16 {
        return Err("no operator has its table of int16".into());
    }
    let wide = gradlet_core::TensorType::new(DType::I32, from.shape);
    let (operand, index) = (to.tensor(x)?, to.temporary(wide, None)?);
    to.operator("CAST", &[operand], &[index], None);
    let index = match from.dtype {
        DType::U8 => index,
        _ => {
            let (first, moved) = (to.number(128)?, to.temporary(wide, None)?);
            to.operator("ADD", &[index, first], &[moved], Some((11, Vec::new())));
            moved
        }
    };
    let scale = to.scale(y).ok().map(AffineQuantization::from);
    let (table, y) = (to.constant(table, scale)?, to.result(y)?);
    to.operator("GATHER", &[table, index], &[y], Some((23, vec![(0, Field::I32(0))])));
    Ok(())
}
