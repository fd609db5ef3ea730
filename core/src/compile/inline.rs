//! Rewrites of calls, branches and loops that do not change the bits of results. Calls and decided branches become part of the surrounding
//! graph. Unused parts of the remaining branches and loops are removed, in particular the state that only a gradient would have needed.

use crate::base::dtype::Bool;
use crate::base::error::Result;
use crate::base::shape::TensorType;
use crate::ops;
use crate::tensor::Tensor;
use crate::tensor::graph::{Graph, Node, Origin, ValueId, has_effect};
use crate::trace::tracing::CALL;
use alloc::vec::Vec;

/// Replaces calls, and branches that a constant decides, by their bodies. Returns true if there were any.
pub(crate) fn inline(graph: &mut Graph) -> Result<bool> {
    let mut changed = false;
    for mut node in core::mem::take(&mut graph.nodes) {
        match inlined(graph, &node)? {
            Some((body, first)) => {
                for inner in 0..node.bodies[body].nodes.len() {
                    let name = node.bodies[body].nodes[inner].name.as_deref().map(|name| node.inner_name(node.bodies.len(), body, name));
                    node.bodies[body].nodes[inner].name = name;
                }
                let body = node.bodies.swap_remove(body);
                insert(graph, body, node.inputs.get(first..).unwrap_or(&[]), &node.outputs);
                changed = true;
            }
            None => graph.nodes.push(node),
        }
    }
    Ok(changed)
}

/// Returns the index of the body of `node` that always runs, and the index of its first input. Returns `None` if no body is certain to run.
fn inlined(graph: &Graph, node: &Node) -> Result<Option<(usize, usize)>> {
    if core::ptr::eq(node.op, &CALL) {
        return Ok(Some((0, 0)));
    }
    let decided = node.op.def.code == ops::code::cond && !node.bodies.is_empty();
    let Some(by) = node.inputs.first().filter(|_| decided).and_then(|&id| graph.constant(id)) else { return Ok(None) };
    let last = node.bodies.len() - 1;
    let index = match by.tensor_type() {
        TensorType::BOOL => usize::from(!by.item::<Bool>()?.get()),
        _ => usize::try_from(by.item::<i32>()?).unwrap_or(last),
    };
    Ok(Some((index.min(last), 1)))
}

/// Adds the nodes of `body` to `graph`. The inputs of `body` become the values `inputs` of `graph`, and its outputs become the values
/// `outputs`.
fn insert(graph: &mut Graph, body: Graph, inputs: &[ValueId], outputs: &[ValueId]) {
    let place = |(index, value): (usize, &crate::tensor::graph::Value), graph: &mut Graph| match &value.origin {
        Origin::Input(input) => inputs[*input],
        Origin::Node => match body.outputs.iter().position(|&id| id == index) {
            // The loop at the end copies outputs that are inputs, constants or duplicates of other outputs.
            Some(output) => outputs[output],
            None => graph.value(value.tensor_type, Origin::Node),
        },
        origin => graph.value(value.tensor_type, origin.clone()),
    };
    let map: Vec<ValueId> = body.values.iter().enumerate().map(|value| place(value, graph)).collect();
    for mut node in body.nodes {
        node.inputs.iter_mut().chain(&mut node.outputs).for_each(|id| *id = map[*id]);
        graph.nodes.push(node);
    }
    for (&id, &output) in body.outputs.iter().zip(outputs).filter(|&(&id, &output)| map[id] != output) {
        graph.nodes.push(Node::new(&ops::identity::OP, Vec::new(), alloc::vec![map[id]], alloc::vec![output]));
    }
}

/// Removes the unused inputs, outputs and state of branches and loops. Returns true if there were any.
pub(crate) fn prune(graph: &mut Graph) -> bool {
    let mut changed = false;
    for index in 0..graph.nodes.len() {
        if graph.nodes[index].bodies.is_empty() {
            continue;
        }
        let mut node = graph.nodes[index].clone();
        let uses = graph.uses();
        let used: Vec<bool> = node.outputs.iter().map(|&id| uses[id] > 0).collect();
        let shrunk = match node.op.def.code {
            ops::code::while_loop => prune_loop(graph, &mut node, &used),
            _ => prune_branch(&mut node, &used),
        };
        let settled = settle_inputs(graph, &mut node);
        changed |= shrunk || settled;
        graph.nodes[index] = node;
    }
    changed
}

/// Removes the outputs of a branch whose flag in `used` is false. Returns true if there were any.
fn prune_branch(node: &mut Node, used: &[bool]) -> bool {
    for body in &mut node.bodies {
        keep(&mut body.outputs, used);
    }
    keep(&mut node.outputs, used);
    used.contains(&false)
}

/// Turns state that never changes into an ordinary input, and removes state that no used value depends on. Returns true if the loop
/// changed.
fn prune_loop(graph: &mut Graph, node: &mut Node, used: &[bool]) -> bool {
    let states = node.outputs.len();
    let [condition, body] = node.bodies.as_mut_slice() else { return false };
    if let Some(state) = (0..states).find(|&state| body.outputs[state] == body.inputs[state]) {
        let (output, value) = (node.outputs.remove(state), node.inputs.remove(state));
        node.inputs.push(value);
        body.outputs.remove(state);
        for body in [condition, body] {
            let input = body.inputs.remove(state);
            body.inputs.push(input);
            number_inputs(body);
        }
        // `replace` does not change this node's inputs, because the rewritten copy is not in the graph.
        graph.replace(output, value);
        return true;
    }
    let by_condition = needed(condition, &condition.outputs);
    let mut live: Vec<bool> = (0..states).map(|state| used[state] || by_condition[condition.inputs[state]]).collect();
    loop {
        let roots: Vec<ValueId> = (0..states).filter(|&state| live[state]).map(|state| body.outputs[state]).collect();
        let read = needed(body, &roots);
        let next: Vec<bool> = (0..states).map(|state| live[state] || read[body.inputs[state]]).collect();
        if next == live {
            break;
        }
        live = next;
    }
    keep(&mut body.outputs, &live);
    keep(&mut node.inputs, &live);
    for body in [condition, body] {
        keep(&mut body.inputs, &live);
        number_inputs(body);
    }
    keep(&mut node.outputs, &live);
    live.contains(&false)
}

/// Moves constants into the bodies, and removes inputs that no body reads. Returns true if an input was removed.
fn settle_inputs(graph: &Graph, node: &mut Node) -> bool {
    let first = node.inputs.len() - node.bodies[0].inputs.len();
    let states = if node.op.def.code == ops::code::while_loop { node.outputs.len() } else { 0 };
    let mut kept: Vec<bool> = Vec::new();
    for (position, &value) in node.inputs[first..].iter().enumerate() {
        let constant = graph.constant(value).filter(|_| position >= states);
        let read = |body: &Graph| needed(body, &body.outputs)[body.inputs[position]];
        kept.push(position < states || constant.is_none() && node.bodies.iter().any(read));
        if let Some(constant) = constant {
            node.bodies.iter_mut().for_each(|body| hold(body, position, constant));
        }
    }
    for body in &mut node.bodies {
        keep(&mut body.inputs, &kept);
        number_inputs(body);
    }
    let kept: Vec<bool> = core::iter::repeat_n(true, first).chain(kept).collect();
    keep(&mut node.inputs, &kept);
    kept.contains(&false)
}

fn hold(body: &mut Graph, input: usize, constant: &Tensor) {
    let id = body.inputs[input];
    body.values[id].origin = Origin::Constant(constant.clone());
}

/// Keeps the items whose flag in `kept` is true, and all items after the last flag.
fn keep<T>(items: &mut Vec<T>, kept: &[bool]) {
    let mut index = 0;
    items.retain(|_| {
        index += 1;
        kept.get(index - 1).copied().unwrap_or(true)
    });
}

/// Renumbers the inputs of a body. A value that is no longer an input gets the origin `Node`; no node reads it.
fn number_inputs(body: &mut Graph) {
    let inputs = body.values.iter_mut().filter(|value| matches!(value.origin, Origin::Input(_)));
    inputs.for_each(|value| value.origin = Origin::Node);
    for (index, &id) in body.inputs.iter().enumerate() {
        body.values[id].origin = Origin::Input(index);
    }
}

/// Returns a flag for each value of `graph`. It is true if one of `roots`, or a node with effects, depends on the value.
fn needed(graph: &Graph, roots: &[ValueId]) -> Vec<bool> {
    let mut needed = alloc::vec![false; graph.values.len()];
    roots.iter().for_each(|&id| needed[id] = true);
    for node in graph.nodes.iter().rev() {
        if has_effect(node) || node.outputs.iter().any(|&id| needed[id]) {
            node.inputs.iter().for_each(|&id| needed[id] = true);
        }
    }
    needed
}
