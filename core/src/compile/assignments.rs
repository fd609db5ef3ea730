//! Decides which assignments happen in place. The node that computes a variable's new value writes it into the variable's own bytes, if
//! all readers of the old value can run before it. Otherwise the planner adds a copy.

use crate::compile::plan::{copy, effects, producers, readers};
use crate::ops;
use crate::tensor::graph::{Graph, Origin, ValueId};
use alloc::vec::Vec;

/// Decides, for each assigned variable, whether the node that computes its new value can write directly into the variable. If it cannot,
/// adds a copy. Returns, for each value, the index of the captured variable in whose bytes it is written, or `None`.
pub(crate) fn place_assignments(graph: &mut Graph) -> Vec<Option<usize>> {
    for index in 0..graph.captures.len() {
        let Some(value) = graph.captures[index].assigned else { continue };
        // No node computes an initial value, an argument or a constant, so a copy writes it.
        if !matches!(graph.values[value].origin, Origin::Node) {
            assign_copy(graph, index, value);
        }
        // A result that is the variable's old value must survive the assignment.
        let old = graph.captures[index].initial;
        if graph.outputs.contains(&old) {
            let kept = copy(graph, old);
            graph.outputs.iter_mut().filter(|output| **output == old).for_each(|output| *output = kept);
        }
    }
    let mut direct: Vec<Option<usize>> = alloc::vec![None; graph.values.len()];
    let mut order = Order::new(graph);
    for index in 0..graph.captures.len() {
        let Some(value) = graph.captures[index].assigned else { continue };
        if direct[value].is_none() && order.write_direct(graph, index, value) {
            direct[value] = Some(index);
        } else {
            assign_copy(graph, index, value);
            direct.push(Some(index));
        }
    }
    direct
}

fn assign_copy(graph: &mut Graph, capture: usize, value: ValueId) {
    graph.captures[capture].assigned = Some(copy(graph, value));
}

/// The order constraints of the nodes. They grow with each decision that a node writes into a variable.
struct Order {
    after: Vec<Vec<usize>>,
    readers: Vec<Vec<usize>>,
}

impl Order {
    fn new(graph: &Graph) -> Order {
        let producers = producers(graph);
        let mut order = Order { after: alloc::vec![Vec::new(); graph.nodes.len()], readers: readers(graph) };
        for (index, node) in graph.nodes.iter().enumerate() {
            node.inputs.iter().filter_map(|&id| producers[id]).for_each(|maker| order.after[maker].push(index));
        }
        effects(graph).windows(2).for_each(|pair| order.after[pair[0]].push(pair[1]));
        order
    }

    /// True if the node that computes `value` may write it into variable `capture`. The node must read the old value only in place, and
    /// no reader of the old value may have to run after it. If true, the readers are ordered before the node.
    fn write_direct(&mut self, graph: &Graph, capture: usize, value: ValueId) -> bool {
        let old = graph.captures[capture].initial;
        let Some(maker) = graph.nodes.iter().position(|node| node.outputs.contains(&value)) else { return false };
        let node = &graph.nodes[maker];
        let output = node.outputs.iter().position(|&id| id == value).unwrap_or(0);
        let in_place = |input: usize| match node.op.def.code {
            _ if node.bodies.is_empty() => node.op.def.in_place.contains(&(input as u8, output as u8)),
            ops::code::while_loop => input == output,
            _ => input > 0,
        };
        if node.op.def.code == ops::code::while_loop && node.inputs.get(output) != Some(&old) {
            return false;
        }
        let misread = node.inputs.iter().enumerate().any(|(input, &id)| id == old && !in_place(input));
        // A branch that has the old value as two inputs could write it through one and then read it through the other.
        let twice = !node.bodies.is_empty() && node.inputs.iter().filter(|&&id| id == old).count() > 1;
        if misread || twice {
            return false;
        }
        let later = self.reachable(maker);
        let others: Vec<usize> = self.readers[old].iter().copied().filter(|&reader| reader != maker).collect();
        if others.iter().any(|&reader| later[reader]) {
            return false;
        }
        others.into_iter().for_each(|reader| self.after[reader].push(maker));
        true
    }

    fn reachable(&self, from: usize) -> Vec<bool> {
        let mut seen = alloc::vec![false; self.after.len()];
        let mut open = alloc::vec![from];
        while let Some(node) = open.pop() {
            for &next in &self.after[node] {
                if !core::mem::replace(&mut seen[next], true) {
                    open.push(next);
                }
            }
        }
        seen
    }
}
