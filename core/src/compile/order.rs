//! Orders in which the nodes of a graph can run.

use crate::compile::plan::{Target, producers, readers};
use crate::tensor::graph::{Graph, Node, Origin, ValueId};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cell::Cell;

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

/// Builds an order of all nodes. Of the nodes that are ready to run, it takes the one with the smallest `key`, and of equal ones the
/// earliest. After a node, `run` returns the nodes whose keys have changed.
fn schedule(edges: &[Vec<usize>], key: impl Fn(usize) -> i128, mut run: impl FnMut(usize) -> Vec<usize>) -> Vec<usize> {
    let mut missing: Vec<usize> = edges.iter().map(Vec::len).collect();
    let mut after: Vec<Vec<usize>> = alloc::vec![Vec::new(); edges.len()];
    for (node, before) in edges.iter().enumerate() {
        before.iter().for_each(|&earlier| after[earlier].push(node));
    }
    let mut keys: Vec<Option<i128>> = missing.iter().enumerate().map(|(node, &missing)| (missing == 0).then(|| key(node))).collect();
    let mut ready: BTreeSet<(i128, usize)> = keys.iter().enumerate().filter_map(|(node, key)| Some(((*key)?, node))).collect();
    let mut order = Vec::with_capacity(edges.len());
    while let Some((_, node)) = ready.pop_first() {
        keys[node] = None;
        order.push(node);
        for changed in run(node) {
            if let Some(old) = keys[changed] {
                ready.remove(&(old, changed));
                keys[changed] = Some(key(changed));
                ready.insert((key(changed), changed));
            }
        }
        for &later in &after[node] {
            missing[later] -= 1;
            if missing[later] == 0 {
                keys[later] = Some(key(later));
                ready.insert((key(later), later));
            }
        }
    }
    order
}

/// Returns the order of the trace, except where an overwritten variable requires another one.
pub(crate) fn in_order(edges: &[Vec<usize>]) -> Vec<usize> {
    schedule(edges, |_| 0, |_| Vec::new())
}

/// Returns an order that always takes the ready node that frees the most memory, or allocates the least.
pub(crate) fn lowest_first(graph: &Graph, edges: &[Vec<usize>], target: Target) -> Vec<usize> {
    let (uses, readers) = (graph.uses().into_iter().map(Cell::new).collect::<Vec<_>>(), readers(graph));
    let bytes = |id: ValueId| graph.values[id].tensor_type.bytes().unwrap_or(0) as i128;
    let in_scratch = |id: ValueId| match graph.values[id].origin {
        Origin::Node => true,
        Origin::Input(_) => target == Target::Device,
        _ => false,
    };
    let assigned: BTreeSet<ValueId> = graph.captures.iter().filter_map(|capture| capture.assigned).collect();
    let growth = |node: usize| -> i128 {
        let node = &graph.nodes[node];
        let freed: i128 = node.inputs.iter().filter(|&&id| uses[id].get() == 1 && in_scratch(id)).map(|&id| bytes(id)).sum();
        node.outputs.iter().filter(|id| !assigned.contains(id)).map(|&id| bytes(id)).sum::<i128>() - freed
    };
    schedule(edges, growth, |node| {
        let inputs = &graph.nodes[node].inputs;
        inputs.iter().for_each(|&id| uses[id].set(uses[id].get() - 1));
        inputs.iter().filter(|&&id| uses[id].get() == 1).flat_map(|&id| readers[id].iter().copied()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::dtype::DType;
    use crate::base::random::Stream;
    use crate::base::shape::{Shape, TensorType};
    use crate::ops::identity;

    /// Returns the order of [`lowest_first`], by asking every ready node before each step.
    fn naive(graph: &Graph, edges: &[Vec<usize>]) -> Vec<usize> {
        let (mut uses, mut order) = (graph.uses(), Vec::new());
        let bytes = |id: ValueId| graph.values[id].tensor_type.bytes().unwrap() as i128;
        while order.len() < edges.len() {
            let is_ready = |node: &usize| !order.contains(node) && edges[*node].iter().all(|before| order.contains(before));
            let growth = |&node: &usize| {
                let (inputs, outputs) = (&graph.nodes[node].inputs, &graph.nodes[node].outputs);
                let freed: i128 = inputs.iter().filter(|&&id| uses[id] == 1).map(|&id| bytes(id)).sum();
                outputs.iter().map(|&id| bytes(id)).sum::<i128>() - freed
            };
            let next = (0..edges.len()).filter(is_ready).min_by_key(growth).unwrap();
            graph.nodes[next].inputs.iter().for_each(|&id| uses[id] -= 1);
            order.push(next);
        }
        order
    }

    #[test]
    fn the_node_that_frees_the_most_is_next() {
        for seed in 0..40 {
            let (random, mut graph) = (Stream { key: seed, stream: 0 }, Graph::default());
            for index in 0..80 {
                let numbers = random.block(index);
                let tensor_type = TensorType::new(DType::F32, Shape::new(&[1 + numbers[0] % 9]).unwrap());
                let output = graph.value(tensor_type, if index < 4 { Origin::Input(index as usize) } else { Origin::Node });
                if index >= 4 {
                    // A node may read a value twice.
                    let inputs = numbers[1..].iter().map(|&number| number as usize % output).collect();
                    graph.nodes.push(Node::new(&identity::OP, Vec::new(), inputs, alloc::vec![output]));
                }
            }
            let edges = edges(&graph, &alloc::vec![None; graph.values.len()]);
            assert_eq!(lowest_first(&graph, &edges, Target::Device), naive(&graph, &edges), "seed {seed}");
        }
    }
}
