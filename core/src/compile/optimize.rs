//! Rewrites of a graph that do not change the bits of its results. They remove dead code, fold constants, remove ops that change nothing,
//! and fuse an optimizer step with the product that computes its gradient.

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::compile::inline::{inline, prune};
use crate::ops;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::{Graph, Node, Origin, ValueId, has_effect};
use crate::tensor::scope::Keeps;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Maximum size of a folded constant, in bytes. A larger constant would cost more flash than its computation costs time.
const FOLD_LIMIT: usize = 4096;

/// Optimizes `graph` until nothing changes.
pub fn optimize(graph: &mut Graph) -> Result<()> {
    rewrite(graph)?;
    drop_unused_captures(graph);
    Ok(())
}

/// Copies the constants of `graph` to `device`, a CPU, and optimizes `graph` again if one of them was elsewhere.
pub(crate) fn optimize_on(device: &Device, graph: &mut Graph) -> Result<()> {
    if bring(device, graph, &|tensor| Ok(tensor.buffer()?.bytes().is_none()))? { optimize(graph) } else { Ok(()) }
}

/// Copies the constants of `graph` that other devices have to `device`.
pub(crate) fn localize(device: &Device, graph: &mut Graph) -> Result<()> {
    bring(device, graph, &|tensor| Ok(tensor.buffer()?.device() != device)).map(drop)
}

/// Copies the constants of a graph and of its bodies to `device`, where `wanted` is true. Returns true if it copied one of them.
fn bring(device: &Device, graph: &mut Graph, wanted: &dyn Fn(&Tensor) -> Result<bool>) -> Result<bool> {
    let mut brought = false;
    for value in &mut graph.values {
        if let Origin::Constant(tensor) = &mut value.origin
            && wanted(tensor)?
        {
            *tensor = tensor.brought(device)?;
            brought = true;
        }
    }
    for body in graph.nodes.iter_mut().flat_map(|node| &mut node.bodies) {
        brought |= bring(device, body, wanted)?;
    }
    Ok(brought)
}

/// Rewrites a graph and the bodies of its branches and loops.
fn rewrite(graph: &mut Graph) -> Result<()> {
    loop {
        let inlined = inline(graph)?;
        drop_dead_nodes(graph);
        for node in &mut graph.nodes {
            node.bodies.iter_mut().try_for_each(rewrite)?;
        }
        let pruned = prune(graph);
        let folded = fold_constants(graph, FOLD_LIMIT)?;
        let simplified = simplify(graph);
        let fused = fuse_steps(graph);
        if !(inlined || pruned || folded || simplified || fused) {
            return Ok(());
        }
    }
}

/// Removes nodes without effects that no result depends on.
fn drop_dead_nodes(graph: &mut Graph) {
    let mut needed = alloc::vec![false; graph.values.len()];
    graph.results().collect::<Vec<_>>().into_iter().for_each(|id| needed[id] = true);
    let mut keep: Vec<bool> = Vec::new();
    for node in graph.nodes.iter().rev() {
        let alive = node.outputs.iter().any(|&id| needed[id]) || has_effect(node);
        if alive {
            node.inputs.iter().for_each(|&id| needed[id] = true);
        }
        keep.push(alive);
    }
    let mut keep = keep.into_iter().rev();
    graph.nodes.retain(|_| keep.next() == Some(true));
}

/// Computes the nodes whose inputs are all constants, however large their outputs are.
pub(crate) fn fold(graph: &mut Graph) -> Result<()> {
    fold_constants(graph, usize::MAX).map(drop)
}

/// Computes nodes whose inputs are all constants. Such nodes with outputs of more than `limit` bytes stay, unless they are views. Returns
/// true if a node was computed.
fn fold_constants(graph: &mut Graph, limit: usize) -> Result<bool> {
    let mut changed = false;
    let nodes = core::mem::take(&mut graph.nodes);
    for node in nodes {
        let inputs: Option<Vec<Tensor>> = node.inputs.iter().map(|&id| graph.constant(id).cloned()).collect();
        let small = node.outputs.iter().all(|&id| graph.values[id].tensor_type.bytes().is_some_and(|bytes| bytes <= limit));
        match inputs {
            Some(inputs) if (small || node.op.is_view()) && !inputs.is_empty() && node.bodies.is_empty() && !has_effect(&node) => {
                let computed = Tensor::compute(node.op, &node.attributes, &inputs.iter().collect::<Vec<_>>())?;
                for (&id, tensor) in node.outputs.iter().zip(computed) {
                    graph.values[id].origin = Origin::Constant(tensor);
                }
                changed = true;
            }
            _ => graph.nodes.push(node),
        }
    }
    Ok(changed)
}

/// Removes nodes that return their input unchanged, and turns broadcasts and transposes that move no element into views. A sum over
/// single elements is not simplified: it starts from +0 and so turns −0 into +0. Returns true if the graph changed.
fn simplify(graph: &mut Graph) -> bool {
    let mut changed = false;
    let assigned: BTreeSet<ValueId> = graph.captures.iter().filter_map(|capture| capture.assigned).collect();
    // The value that every later reader of a value reads instead.
    let mut instead: Vec<ValueId> = (0..graph.values.len()).collect();
    for mut node in core::mem::take(&mut graph.nodes) {
        node.inputs.iter_mut().for_each(|id| *id = instead[*id]);
        if let (Some(&input), &[output]) = (node.inputs.first(), node.outputs.as_slice()) {
            let (from, to) = (graph.values[input].tensor_type, graph.values[output].tensor_type);
            let even = from.dtype == to.dtype && from.shape.elements() == to.shape.elements();
            let moves_nothing = matches!(node.op.keeps, Keeps::Where(holds) if even && holds(&node.attributes, from.shape.dims()));
            let same = moves_nothing || matches!(node.op.keeps, Keeps::SameType | Keeps::Always) || by_neutral(graph, &node);
            let scales = [input, output].map(|id| graph.values[id].quantization.as_deref());
            // A view with another scale has no cost, and its readers compute with this scale.
            let rescales = node.op.is_view() && scales.iter().all(Option::is_some) && scales[0] != scales[1];
            if from == to && same && !rescales && !assigned.contains(&output) {
                instead[output] = input;
                changed = true;
                continue;
            }
            if moves_nothing {
                let attributes = to.shape.dims().to_vec();
                node = Node { name: node.name, ..Node::new(&ops::reshape::OP, attributes, node.inputs, node.outputs) };
                changed = true;
            }
        }
        graph.nodes.push(node);
    }
    graph.outputs.iter_mut().for_each(|id| *id = instead[*id]);
    changed
}

/// True if input 1 is a constant whose elements all have the op's neutral value, as in `x * 1`. Constants of a remote device are not read.
fn by_neutral(graph: &Graph, node: &Node) -> bool {
    let (Some(neutral), Some(&id)) = (node.op.neutral, node.inputs.get(1)) else { return false };
    let near = |tensor: &&Tensor| tensor.buffer().is_ok_and(|buffer| buffer.bytes().is_some());
    let all = |tensor: &Tensor| tensor.to_vec::<f32>().is_ok_and(|elements| elements.iter().all(|&element| element == neutral));
    graph.constant(id).filter(near).is_some_and(all)
}

/// Fuses one optimizer step with the product that computes its gradient. The gradient of a dense kernel then never exists as a whole.
/// Returns true if a step was fused.
fn fuse_steps(graph: &mut Graph) -> bool {
    let uses = graph.uses();
    for index in 0..graph.nodes.len() {
        let step = &graph.nodes[index];
        let Some((input, op)) = step.op.with_product else { continue };
        let gradient = step.inputs[input];
        let Some(made) = graph.nodes.iter().find(|node| node.outputs.contains(&gradient)) else { continue };
        let transposed = made.op.def.code == ops::code::matmul && made.attributes == [1, 0];
        let flat = made.inputs.iter().all(|&id| graph.values[id].tensor_type.shape.rank() == 2);
        let float = matches!(graph.values[gradient].tensor_type.dtype, DType::F32 | DType::F64);
        if transposed && flat && float && uses[gradient] == 1 {
            let mut inputs = step.inputs.clone();
            inputs.splice(input..=input, made.inputs.iter().copied());
            let (attributes, outputs, name) = (step.attributes.clone(), step.outputs.clone(), step.name.clone());
            graph.nodes[index] = Node { name, ..Node::new(op, attributes, inputs, outputs) };
            return true;
        }
    }
    false
}

/// Removes assignments of a variable's own value, and variables that are neither read nor assigned.
fn drop_unused_captures(graph: &mut Graph) {
    graph.captures.iter_mut().filter(|capture| capture.assigned == Some(capture.initial)).for_each(|capture| capture.assigned = None);
    let uses = graph.uses();
    graph.captures.retain(|capture| uses[capture.initial] > 0 || capture.assigned.is_some());
    for (index, capture) in graph.captures.iter().enumerate() {
        graph.values[capture.initial].origin = Origin::Variable(index);
    }
}
