//! From a traced function to a graph without variables, in which a layer's normalization is part of its weights.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::read_attributes;
use crate::compile::optimize::{fold, optimize};
use crate::ops::{self, code};
use crate::tensor::Tensor;
use crate::tensor::graph::{Graph, Node, Origin, ValueId};
use crate::tensor::scope::Scope;
use crate::trace::eager::Eager;
use alloc::format;
use alloc::vec::Vec;

/// Returns `graph`, the trace of the function `name`, with the present values of its variables as constants, and with the sums and products
/// after a layer in its weights. Fails if the function changes a variable.
pub(crate) fn freeze(name: &str, graph: &Graph) -> Result<Graph> {
    let mut graph = graph.clone();
    for capture in core::mem::take(&mut graph.captures) {
        let variable = capture.source.variable().ok_or(Error::Internal)?;
        if capture.assigned.is_some_and(|id| id != capture.initial) {
            let text = format!("{name} changes the variable {}: only a function that changes none can be frozen", variable.name());
            return Err(Error::message(text));
        }
        let value = Eager::new(&variable.device()?).read(&variable.as_argument(false))?;
        graph.values[capture.initial].origin = Origin::Constant(value);
    }
    optimize(&mut graph)?;
    fold(&mut graph)?;
    products_with_weights(&mut graph)?;
    while absorb(&mut graph)? {}
    Ok(graph)
}

/// Turns products with a constant matrix into dense layers.
fn products_with_weights(graph: &mut Graph) -> Result<()> {
    for index in 0..graph.nodes.len() {
        let node = &graph.nodes[index];
        if node.op.def.code != code::matmul {
            continue;
        }
        let ops::matmul::Attributes { transpose_a, transpose_b } = read_attributes(&node.attributes)?;
        let is_matrix = |id: ValueId| graph.constant(id).is_some_and(|kernel| kernel.dims().len() == 2 && kernel.dtype().is_float());
        if transpose_a == 0 && is_matrix(node.inputs[1]) {
            let (op, attributes) = (&ops::dense::OP, alloc::vec![transpose_b]);
            graph.nodes[index] = Node { op, attributes, ..node.clone() };
        }
    }
    Ok(())
}

/// A sum or a product with a constant for each channel, as it changes the weights before it.
enum Affine {
    Factor(Tensor),
    Offset(Tensor),
}

/// Makes one sum or product with a constant for each channel part of the layer before it. Returns false if there is none.
fn absorb(graph: &mut Graph) -> Result<bool> {
    let uses = graph.uses();
    let makers = makers(graph);
    for index in 0..graph.nodes.len() {
        let node = &graph.nodes[index];
        // A print has no output.
        if node.outputs.len() != 1 {
            continue;
        }
        let layer =
            node.inputs.iter().filter_map(|&id| makers[id]).find(|&layer| is_layer(graph, layer) && uses[output(graph, layer)] == 1);
        let Some(layer) = layer else { continue };
        let same_type = graph.values[output(graph, layer)].tensor_type == graph.values[output(graph, index)].tensor_type;
        let Some(changes) = affine(graph, node, output(graph, layer))?.filter(|_| same_type) else { continue };
        for change in changes {
            change_weights(graph, layer, change)?;
        }
        graph.nodes[layer].outputs = graph.nodes[index].outputs.clone();
        graph.nodes.remove(index);
        return Ok(true);
    }
    Ok(false)
}

/// Returns the index of the node that computes each value.
pub(crate) fn makers(graph: &Graph) -> Vec<Option<usize>> {
    let mut makers = alloc::vec![None; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        node.outputs.iter().for_each(|&id| makers[id] = Some(index));
    }
    makers
}

fn output(graph: &Graph, node: usize) -> ValueId {
    graph.nodes[node].outputs.first().copied().unwrap_or(ValueId::MAX)
}

/// True if a node is a convolution or a dense layer of f32 whose weights are constants.
pub(crate) fn is_layer(graph: &Graph, node: usize) -> bool {
    let node = &graph.nodes[node];
    matches!(node.op.def.code, code::conv2d | code::depthwise_conv2d | code::dense)
        && node.inputs.iter().skip(1).all(|&id| graph.constant(id).is_some())
        && graph.values[node.inputs[0]].tensor_type.dtype == DType::F32
}

/// Returns what `node` does to `y`, its other operand: the changes in their order. Returns `None` if it is no sum or product of `y` with a
/// constant for each channel.
fn affine(graph: &Graph, node: &Node, y: ValueId) -> Result<Option<Vec<Affine>>> {
    let &[left, right] = node.inputs.as_slice() else { return Ok(None) };
    let (other, y_is_left) = if left == y { (right, true) } else { (left, false) };
    let channels = graph.values[y].tensor_type.shape.dims().last().copied().unwrap_or(0);
    let each_channel = |tensor: &&Tensor| {
        let (elements, last) = (tensor.shape().elements(), tensor.dims().last().copied());
        elements == Some(1) || elements == Some(channels as usize) && last == Some(channels)
    };
    let Some(constant) = graph.constant(other).filter(each_channel) else { return Ok(None) };
    let constant = constant.reshape_open(&[-1])?;
    Ok(Some(match (node.op.def.code, y_is_left) {
        (code::add, _) => alloc::vec![Affine::Offset(constant)],
        (code::sub, true) => alloc::vec![Affine::Offset(constant.neg()?)],
        (code::sub, false) => alloc::vec![Affine::Factor(constant.like(-1.0)?), Affine::Offset(constant)],
        (code::mul, _) => alloc::vec![Affine::Factor(constant)],
        (code::div, true) => alloc::vec![Affine::Factor(constant.like(1.0)?.div(&constant)?)],
        _ => return Ok(None),
    }))
}

/// Changes the kernel and the bias of a layer.
fn change_weights(graph: &mut Graph, layer: usize, change: Affine) -> Result<()> {
    let node = &graph.nodes[layer];
    let constant = |at: usize| node.inputs.get(at).and_then(|&id| graph.constant(id));
    let kernel = constant(1).ok_or(Error::Internal)?.clone();
    let channels = graph.values[node.outputs[0]].tensor_type.shape.dims().last().copied().unwrap_or(0);
    let bias = constant(2).map_or_else(|| Tensor::full(&kernel.device()?, 0.0f32, &[channels]), |bias| Ok(bias.clone()))?;
    let (kernel, bias) = match change {
        Affine::Offset(offset) => (kernel, bias.add(&offset)?),
        Affine::Factor(factor) => {
            let of_kernel = match (node.op.def.code, kernel.dims()) {
                _ if factor.shape().elements() == Some(1) => factor.clone(),
                (code::depthwise_conv2d, &[_, _, c, multiplier]) => factor.reshape(&[c, multiplier])?,
                (code::dense, _) if node.attributes == [1] => factor.reshape_open(&[-1, 1])?,
                _ => factor.clone(),
            };
            (kernel.mul(&of_kernel)?, bias.mul(&factor)?)
        }
    };
    let x = node.inputs[0];
    let [kernel, bias] = [kernel, bias].map(|tensor| graph.value(tensor.tensor_type(), Origin::Constant(tensor)));
    graph.nodes[layer].inputs = alloc::vec![x, kernel, bias];
    Ok(())
}
