//! Orders in which the nodes of a graph can run.

use crate::compile::plan::{Target, producers, readers};
use crate::tensor::graph::{Graph, Node, Origin, ValueId};
use alloc::vec::Vec;

/// Returns, for each node, the nodes that must run before it: the producers of its inputs, and the readers of a variable that it
/// overwrites. `direct` holds, for each value, the variable in whose bytes it is written.
pub(crate) fn edges(graph: &Graph, direct: &[Option<usize>]) -> Vec<Vec<usize>> {
    let (producers, readers) = (producers(graph), readers(graph));
    let needs = |(index, node): (usize, &Node)| {
        let mut before: Vec<usize> = node.inputs.iter().filter_map(|&id| producers[id]).collect();
        for variable in node.outputs.iter().filter_map(|&id| direct[id]) {
            before.extend(readers[graph.captures[variable].initial].iter().filter(|&&reader| reader != index));
        }
        before.sort_unstable();
        before.dedup();
        before
    };
    graph.nodes.iter().enumerate().map(needs).collect()
}

/// Adds edges so that nodes that may reject their data run before any write to a variable, unless they depend on the new value.
pub(crate) fn hoist_checks(graph: &Graph, direct: &[Option<usize>], edges: &mut [Vec<usize>]) {
    let checks = |index: &usize| {
        let node = &graph.nodes[*index];
        node.inputs.first().is_some_and(|&input| node.op.may_refuse(graph.values[input].tensor_type.dtype))
    };
    let writes = |index: &usize| graph.nodes[*index].outputs.iter().any(|&id| direct[id].is_some());
    for check in (0..edges.len()).filter(checks) {
        let needed = ancestors(edges, check);
        for writer in (0..edges.len()).filter(writes).filter(|&writer| writer != check && !needed[writer]) {
            edges[writer].push(check);
        }
    }
    for before in edges {
        before.sort_unstable();
        before.dedup();
    }
}

/// Returns a flag for each node. It is true if the node must run before `node`, directly or indirectly.
fn ancestors(edges: &[Vec<usize>], node: usize) -> Vec<bool> {
    let mut seen = alloc::vec![false; edges.len()];
    let mut open = alloc::vec![node];
    while let Some(node) = open.pop() {
        for &before in &edges[node] {
            if !core::mem::replace(&mut seen[before], true) {
                open.push(before);
            }
        }
    }
    seen
}

/// Builds an order of all nodes. `choose` receives the nodes that are ready to run, and returns the position of the next one among
/// them.
fn schedule(edges: &[Vec<usize>], mut choose: impl FnMut(&[usize]) -> usize) -> Vec<usize> {
    let mut missing: Vec<usize> = edges.iter().map(Vec::len).collect();
    let mut after: Vec<Vec<usize>> = alloc::vec![Vec::new(); edges.len()];
    for (node, before) in edges.iter().enumerate() {
        before.iter().for_each(|&earlier| after[earlier].push(node));
    }
    let mut ready: Vec<usize> = (0..edges.len()).filter(|&node| missing[node] == 0).collect();
    let mut order = Vec::with_capacity(edges.len());
    while !ready.is_empty() {
        let node = ready.remove(choose(&ready));
        order.push(node);
        for &later in &after[node] {
            missing[later] -= 1;
            if missing[later] == 0 {
                let at = ready.partition_point(|&other| other < later);
                ready.insert(at, later);
            }
        }
    }
    order
}

/// Returns the order of the trace, except where an overwritten variable requires another one.
pub(crate) fn in_order(edges: &[Vec<usize>]) -> Vec<usize> {
    schedule(edges, |_| 0)
}

/// Returns an order that always takes the ready node that frees the most memory, or allocates the least.
pub(crate) fn lowest_first(graph: &Graph, edges: &[Vec<usize>], target: Target) -> Vec<usize> {
    let mut uses = graph.uses();
    let bytes = |id: ValueId| graph.values[id].tensor_type.bytes().unwrap_or(0) as i128;
    let in_scratch = |id: ValueId| match graph.values[id].origin {
        Origin::Node => true,
        Origin::Input(_) => target == Target::Device,
        _ => false,
    };
    schedule(edges, |ready| {
        let growth = |&node: &usize| -> i128 {
            let node = &graph.nodes[node];
            let freed: i128 = node.inputs.iter().filter(|&&id| uses[id] == 1 && in_scratch(id)).map(|&id| bytes(id)).sum();
            let variables = |id: &&ValueId| !graph.captures.iter().any(|capture| capture.assigned == Some(**id));
            node.outputs.iter().filter(variables).map(|&id| bytes(id)).sum::<i128>() - freed
        };
        let chosen = (0..ready.len()).min_by_key(|&index| growth(&ready[index])).unwrap_or(0);
        graph.nodes[ready[chosen]].inputs.iter().for_each(|&id| uses[id] -= 1);
        chosen
    })
}
