//! Which assignments happen in place: the node that makes a variable's new value writes it into the variable's own bytes, if whoever
//! reads the old value can run before it. Elsewhere a copy is added.

use crate::compile::plan::{copy, effects, producers, readers};
use crate::ops;
use crate::tensor::graph::{Graph, Origin, ValueId};
use alloc::vec::Vec;

/// Decides for each assigned variable whether the node that makes its new value can write it straight into the
/// variable; where it cannot, adds a copy. Gives, for each value, the variable whose bytes it takes.
pub(crate) fn place_assignments(graph: &mut Graph) -> Vec<Option<usize>> {
    for index in 0..graph.captures.len() {
        let Some(value) = graph.captures[index].assigned else { continue };
        // Nothing makes a variable's first value, an argument or a constant: a copy does.
        if !matches!(graph.values[value].origin, Origin::Node) {
            assign_copy(graph, index, value);
        }
        // A result that is the old value must outlive it.
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

/// Which node must run before which, while it is decided which nodes write into variables.
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

    /// True if the node that makes `value` may write it into variable `capture`: it does not read the old value except in
    /// place, and no reader of the old value has to run after it. Then the readers are ordered before it.
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
        // What a branch has twice it could read under one name after it was written under the other.
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
