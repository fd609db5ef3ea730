//! The int8 forms of float ops.

use super::lower::Lowering;
use super::plan::{Fate, Site};
use super::ranges::Weights;
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::read_attributes;
use crate::base::quantization::Quantization;
use crate::compile::freeze::is_layer;
use crate::ops::conv2d::{self, Conv2DOptions, Padding};
use crate::ops::{self, PairQuantization, Requantization, code};
use crate::tensor::Tensor;
use crate::tensor::graph::{Graph, Node, ValueId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Function that emits the int8 form of a node.
pub(super) type Form = fn(&mut Lowering<'_>, &Node, &Site) -> Result<()>;

/// Returns the int8 form of a node, or `None` if it has none.
pub(super) fn of(graph: &Graph, index: usize) -> Option<Form> {
    let node = &graph.nodes[index];
    let &[output] = node.outputs.as_slice() else { return None };
    let x = &graph.values[*node.inputs.first()?].tensor_type;
    let floats = node.inputs.iter().filter(|&&id| graph.values[id].tensor_type.dtype == DType::F32).count();
    let made = graph.values[output].tensor_type.dtype;
    Some(match node.op.def.code {
        code::argmax | code::argmin if floats == 1 => argument,
        _ if made != DType::F32 => return None,
        code::conv2d if is_layer(graph, index) => conv2d,
        code::depthwise_conv2d if is_layer(graph, index) => depthwise_conv2d,
        code::dense if is_layer(graph, index) => dense,
        code::matmul => matmul,
        code::add | code::sub | code::mul => pair,
        code::div if node.inputs.get(1).is_some_and(|&id| graph.constant(id).is_some()) => quotient,
        code::maximum | code::minimum => extreme,
        code::softmax if softmax_axis(node) == x.shape.rank().checked_sub(1) => softmax,
        code::mean | code::sum if node.attributes.len() > 1 => reduction,
        code::avg_pool2d => avg_pool2d,
        code::concat => concat,
        code::pad if node.inputs.get(1).is_some_and(|&id| graph.constant(id).is_some()) => pad,
        code::select => select,
        // Zeros for negative indices would be bytes of 0, not the zero point.
        code::gather if node.attributes.get(2) != Some(&0) => return None,
        _ if moves(node) && floats == 1 && x.dtype == DType::F32 => moved,
        _ => return None,
    })
}

/// True if the results of the int8 form of a node can be limited to a range.
pub(super) fn has_range(node: &Node) -> bool {
    matches!(node.op.def.code, code::conv2d | code::depthwise_conv2d | code::dense | code::add | code::sub | code::mul)
}

/// True if the elements of a node's result are elements of its first input.
pub(super) fn moves(node: &Node) -> bool {
    matches!(
        node.op.def.code,
        code::identity
            | code::reshape
            | code::transpose
            | code::strided_slice
            | code::broadcast_to
            | code::gather
            | code::gather_nd
            | code::max
            | code::min
            | code::max_pool2d
    )
}

fn softmax_axis(node: &Node) -> Option<usize> {
    read_attributes::<ops::softmax::Attributes>(&node.attributes).ok().map(|attributes| attributes.axis as usize)
}

/// Returns the scale and zero point that a value has in any case, if its op has a fixed range.
pub(super) fn fixed(graph: &Graph, maker: Option<usize>, root: ValueId) -> Option<Quantization> {
    let node = &graph.nodes[maker?];
    match node.op.def.code {
        code::softmax => Some(Quantization { scale: 1.0 / 256.0, zero_point: -128 }),
        code::sigmoid if node.inputs == [root] => Some(Quantization { scale: 1.0 / 256.0, zero_point: -128 }),
        code::tanh if node.inputs == [root] => Some(Quantization { scale: 1.0 / 128.0, zero_point: 0 }),
        _ => None,
    }
}

/// Operands of an op with weights.
struct Layer {
    x: Tensor,
    filter: Tensor,
    bias: Tensor,
    scales: Vec<f32>,
    input: Quantization,
    output: Quantization,
    range: Option<(i32, i32)>,
}

impl Layer {
    /// Quantizes the weights of a node. `arrange` returns the kernel as the int8 op expects it. Its channels are along axis `axis`.
    fn new(of: &mut Lowering<'_>, node: &Node, site: &Site, axis: usize, arrange: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Layer> {
        let (x, input) = of.int8(node.inputs[0])?;
        let constant = |at: usize| node.inputs.get(at).and_then(|&id| of.graph.constant(id));
        let kernel = arrange(constant(1).ok_or(Error::Internal)?)?;
        let dims = kernel.dims();
        let channels = dims.get(axis).copied().ok_or(Error::Internal)?;
        let bias = constant(2).map_or_else(|| Ok(alloc::vec![0.0; channels as usize]), Tensor::to_vec::<f32>)?;
        let inner = dims.iter().skip(axis + 1).map(|&dim| dim as usize).product::<usize>().max(1);
        let channel = |at: usize| at / inner % channels.max(1) as usize;
        let weights = Weights::new(&kernel.to_vec::<f32>()?, channel, &bias, input.scale);
        let filter = Tensor::new(&of.device, &weights.elements, dims)?;
        let bias = Tensor::new(&of.device, &weights.bias, &[channels])?;
        let output = of.quantization(site.result);
        Ok(Layer { x, filter, bias, scales: weights.scales, input, output, range: site.clip.integers(output) })
    }

    fn scaling(&self) -> Requantization<'_> {
        Requantization { input: self.input, filter: &self.scales, output: self.output, range: self.range }
    }
}

fn window(node: &Node) -> Result<Conv2DOptions> {
    Ok(Conv2DOptions::from(read_attributes::<conv2d::Attributes>(&node.attributes)?))
}

fn conv2d(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let layer = Layer::new(of, node, site, 0, |kernel| kernel.transpose(&[3, 0, 1, 2]))?;
    let y = layer.x.quantized_conv2d(&layer.filter, &layer.bias, &window(node)?, &layer.scaling())?;
    of.put(site, y, layer.output)
}

fn depthwise_conv2d(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let arrange = |kernel: &Tensor| match *kernel.dims() {
        [height, width, channels, multiplier] => kernel.reshape(&[1, height, width, channels * multiplier]),
        _ => Err(Error::Rank { input: 1 }),
    };
    let layer = Layer::new(of, node, site, 3, arrange)?;
    let y = layer.x.quantized_depthwise_conv2d(&layer.filter, &layer.bias, &window(node)?, &layer.scaling())?;
    of.put(site, y, layer.output)
}

fn dense(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let transposed = node.attributes == [1];
    let arrange = |kernel: &Tensor| if transposed { Ok(kernel.clone()) } else { kernel.transpose(&[1, 0]) };
    let layer = Layer::new(of, node, site, 0, arrange)?;
    let y = layer.x.quantized_dense(&layer.filter, &layer.bias, &layer.scaling(), false)?;
    of.put(site, y, layer.output)
}

/// Returns the operands of an op on two tensors, and their scales with that of the result.
fn operands(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<(Tensor, Tensor, PairQuantization)> {
    let &[left, right] = node.inputs.as_slice() else { return Err(Error::Internal) };
    let ((a, left), (b, right)) = (of.int8(left)?, of.int8(right)?);
    let output = of.quantization(site.result);
    Ok((a, b, PairQuantization { left, right, output, range: site.clip.integers(output) }))
}

fn matmul(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let ops::matmul::Attributes { transpose_a, transpose_b } = read_attributes(&node.attributes)?;
    let (a, b, scaling) = operands(of, node, site)?;
    of.put(site, a.quantized_matmul(&b, transpose_a != 0, transpose_b != 0, &scaling)?, scaling.output)
}

fn pair(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let (a, b, scaling) = operands(of, node, site)?;
    let y = match node.op.def.code {
        code::add => a.quantized_add(&b, &scaling),
        code::sub => a.quantized_sub(&b, &scaling),
        _ => a.quantized_mul(&b, &scaling),
    };
    of.put(site, y?, scaling.output)
}

/// Emits a division by constants as a product.
fn quotient(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let divisor = node.inputs.get(1).and_then(|&id| of.graph.constant(id)).ok_or(Error::Internal)?;
    let (b, right) = of.quantized_constant(&divisor.like(1.0)?.div(divisor)?)?;
    let (a, left) = of.int8(node.inputs[0])?;
    let output = of.quantization(site.result);
    let scaling = PairQuantization { left, right, output, range: site.clip.integers(output) };
    of.put(site, a.quantized_mul(&b, &scaling)?, output)
}

/// Emits a node on operands with the scale of its result.
fn extreme(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let output = of.quantization(site.result);
    let [a, b] = [node.inputs[0], node.inputs[1]].map(|id| of.int8_with(id, output));
    let y = if node.op.def.code == code::maximum { a?.maximum(&b?) } else { a?.minimum(&b?) };
    of.put(site, y?, output)
}

fn select(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let output = of.quantization(site.result);
    let &[a, b, condition] = node.inputs.as_slice() else { return Err(Error::Internal) };
    let condition = of.plain(condition)?;
    let y = condition.select(&of.int8_with(a, output)?, &of.int8_with(b, output)?)?;
    of.put(site, y, output)
}

/// Emits a concatenation. If all parts have the same scale, the result keeps it.
fn concat(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let own = node.inputs.iter().map(|&id| Ok(of.int8(id)?.1)).collect::<Result<Vec<Quantization>>>()?;
    let same = own.first().filter(|first| own.iter().all(|other| other == *first));
    let output = same.copied().unwrap_or_else(|| of.quantization(site.result));
    let parts = node.inputs.iter().map(|&id| of.int8_with(id, output)).collect::<Result<Vec<Tensor>>>()?;
    let y = Tensor::emit1(node.op, &node.attributes, &parts.iter().collect::<Vec<_>>())?;
    of.put(site, y, output)
}

fn softmax(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let (x, input) = of.int8(node.inputs[0])?;
    let output = of.quantization(site.result);
    of.put(site, x.quantized_softmax(input, 1.0)?, output)
}

fn reduction(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let (x, input) = of.int8(node.inputs[0])?;
    let output = of.quantization(site.result);
    let (keep, axes) = node.attributes.split_first().ok_or(Error::Internal)?;
    let axes: Vec<i32> = axes.iter().map(|&axis| axis as i32).collect();
    let reduce = if node.op.def.code == code::mean { Tensor::quantized_mean } else { Tensor::quantized_sum };
    of.put(site, reduce(&x, &axes, *keep != 0, input, output)?, output)
}

fn avg_pool2d(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let ops::max_pool2d::Attributes { ksize, strides, padding } = read_attributes(&node.attributes)?;
    let (x, input) = of.int8(node.inputs[0])?;
    let padding = Padding::from_words(padding, [0; 4]);
    of.put(site, x.quantized_avg_pool2d(ksize, strides, padding, None)?, input)
}

/// Emits a padding. The result keeps the scale of x if that has the value of the padding, or if only maxima of windows read it.
fn pad(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let (_, input) = of.int8(node.inputs[0])?;
    let value = node.inputs.get(1).and_then(|&id| of.graph.constant(id)).ok_or(Error::Internal)?.item::<f32>()?;
    let has_value = (-128..=127).contains(&input.nearest(value));
    let output = if has_value || only_maxima_read(of.graph, site.result) { input } else { of.quantization(site.result) };
    let x = of.int8_with(node.inputs[0], output)?;
    let value = Tensor::scalar(&of.device, output.nearest(value).clamp(-128, 127) as i8);
    of.put(site, Tensor::emit1(node.op, &node.attributes, &[&x, &value])?, output)
}

/// True if all readers of a value take maxima of its windows. Its smallest elements then do not matter.
pub(super) fn only_maxima_read(graph: &Graph, id: ValueId) -> bool {
    let mut readers = graph.nodes.iter().filter(|node| node.inputs.contains(&id));
    !graph.outputs.contains(&id) && readers.all(|node| node.op.def.code == code::max_pool2d)
}

/// True if a value is the scores of a softmax along the last axis, and nothing else reads it.
pub(super) fn are_scores(graph: &Graph, id: ValueId) -> bool {
    let mut readers = graph.nodes.iter().filter(|node| node.inputs.contains(&id));
    let last = graph.values[id].tensor_type.shape.rank().checked_sub(1);
    let is_softmax = |node: &Node| node.op.def.code == code::softmax && softmax_axis(node) == last;
    !graph.outputs.contains(&id) && readers.next().is_some_and(is_softmax) && readers.all(is_softmax)
}

/// Emits a node as it is, on int8 elements.
fn moved(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let (x, input) = of.int8(node.inputs[0])?;
    let others = node.inputs[1..].iter().map(|&id| of.plain(id)).collect::<Result<Vec<Tensor>>>()?;
    let operands: Vec<&Tensor> = core::iter::once(&x).chain(&others).collect();
    of.put(site, Tensor::emit1(node.op, &node.attributes, &operands)?, input)
}

/// Emits the position of an extreme, which int8 elements have at the same place.
fn argument(of: &mut Lowering<'_>, node: &Node, site: &Site) -> Result<()> {
    let (x, _) = of.int8(node.inputs[0])?;
    of.put_plain(site.result, Tensor::emit1(node.op, &node.attributes, &[&x])?);
    Ok(())
}

/// True if a node computes floats, or from floats: it has no int8 form, or is a comparison whose result another node than a table reads.
pub(super) fn stays_in_float(graph: &Graph, fates: &[Fate], index: usize) -> bool {
    let node = &graph.nodes[index];
    let is_float = |id: &ValueId| graph.values[*id].tensor_type.dtype.is_float();
    match fates[index] {
        Fate::Stays => node.inputs.iter().filter(|&&id| graph.constant(id).is_none()).chain(&node.outputs).any(is_float),
        Fate::Part if !node.outputs.iter().any(is_float) => {
            let reads =
                |(reader, fate): (&Node, &Fate)| !matches!(fate, Fate::Part) && node.outputs.iter().any(|id| reader.inputs.contains(id));
            node.inputs.iter().any(is_float)
                && (graph.nodes.iter().zip(fates).any(reads) || node.outputs.iter().any(|id| graph.outputs.contains(id)))
        }
        _ => false,
    }
}

/// Returns the description of a node for errors: its op, its name in the trace, and its results.
pub(super) fn described(graph: &Graph, index: usize) -> String {
    let Node { op, name, outputs, .. } = &graph.nodes[index];
    let types: Vec<String> = outputs.iter().map(|&id| format!("{}", graph.values[id].tensor_type)).collect();
    match name {
        Some(name) => format!("{} ({name}: {})", op.def.name, types.join(", ")),
        None => format!("{} ({})", op.def.name, types.join(", ")),
    }
}
