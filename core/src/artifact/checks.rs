//! Checks that make a step refuse data that is not finite before it changes anything.

use crate::ops;
use crate::tensor::graph::{Graph, Node, Origin, ValueId};
use alloc::vec::Vec;

/// Adds [`check_numerics`](ops::check_numerics) to a graph that assigns variables: on each float input, and on each float result that
/// does not depend on an assigned value. The planner runs these checks before the first write to a variable.
pub(super) fn add(graph: &mut Graph) {
    if graph.captures.iter().all(|capture| capture.assigned.is_none()) {
        return;
    }
    let is_float = |graph: &Graph, id: ValueId| graph.values[id].tensor_type.dtype.is_float();
    let changed = dependents(graph);
    let mut results = graph.outputs.clone();
    results.sort_unstable();
    results.dedup();
    results.retain(|&id| is_float(graph, id) && !changed[id] && matches!(graph.values[id].origin, Origin::Node));
    let inputs: Vec<ValueId> = graph.inputs.iter().copied().filter(|&id| is_float(graph, id)).collect();
    let mut nodes: Vec<Node> = inputs.into_iter().map(check).collect();
    for node in core::mem::take(&mut graph.nodes) {
        let checks: Vec<Node> = node.outputs.iter().copied().filter(|id| results.contains(id)).map(check).collect();
        nodes.push(node);
        nodes.extend(checks);
    }
    graph.nodes = nodes;
}

fn check(value: ValueId) -> Node {
    Node::new(&ops::check_numerics::OP, Vec::new(), Vec::from([value]), Vec::new())
}

/// Returns a flag for each value. It is true if the value is assigned to a variable, or computed from such a value.
fn dependents(graph: &Graph) -> Vec<bool> {
    let mut changed = alloc::vec![false; graph.values.len()];
    graph.captures.iter().filter_map(|capture| capture.assigned).for_each(|id| changed[id] = true);
    for node in &graph.nodes {
        if node.inputs.iter().any(|&id| changed[id]) {
            node.outputs.iter().for_each(|&id| changed[id] = true);
        }
    }
    changed
}
