//! The plan of a graph: in which order its nodes run, and where each value lives.
//!
//! Several orders are laid out, and the one that needs the least is taken. What branches and loops run is planned first: it works in
//! a piece of the scratch memory of the graph around it, and reads and writes that graph's values where they are.

use crate::compile::fuse::{Division, Fusion};
use crate::compile::lifetimes::{Layout, Places};
use crate::compile::subgraphs;
use crate::compile::subgraphs::Bodies;
use crate::ops;
use crate::tensor::graph::{Graph, Node, Origin, ValueId, has_effect};
use alloc::vec::Vec;

/// Where a value lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In flash: it is a constant.
    Constant,
    /// At this byte of scratch memory.
    Scratch(u32),
    /// In the bytes of captured variable number so much.
    Variable(usize),
    /// In the caller's tensor, which nothing writes: it is argument number so much. Only on the host.
    Input(usize),
    /// In buffer number so much of those that the caller is given. Only on the host.
    Result(usize),
    /// At this byte of scratch memory, one block for each thread: it never exists as a whole. Only on the host.
    Block(u32),
}

/// What a graph is planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A device: arguments are copied into scratch memory, and results are read there.
    Device,
    /// A host: arguments are read, and results left, in buffers of their own; elementwise nodes may run together.
    Host(Fusion),
}

/// Nodes that run together: one, or several elementwise ones, block by block.
#[derive(Clone, Debug)]
pub struct Step {
    /// The nodes, in the order in which they run.
    pub nodes: Vec<usize>,
    /// How the elements of their tensors are divided.
    pub division: Division,
}

impl Step {
    /// A step of one node.
    pub(crate) fn single(node: usize) -> Step {
        Step { nodes: alloc::vec![node], division: Division::NONE }
    }
}

/// A graph laid out.
pub struct Plan {
    /// The graph, with the copies that its assignments need.
    pub graph: Graph,
    /// The nodes in the order in which they run. Views are not among them.
    pub steps: Vec<Step>,
    /// Where each value lives.
    pub locations: Vec<Location>,
    /// The bytes of scratch memory; `u32::MAX` where they are too many.
    pub scratch: u32,
    /// The plans of what branches and loops run.
    pub bodies: Vec<Bodies>,
}

/// What is decided before the order of the nodes.
pub(crate) struct Decided {
    /// The captured variable whose bytes each value takes.
    pub(crate) direct: Vec<Option<usize>>,
    /// What each node runs, if it is a branch or a loop.
    pub(crate) bodies: Vec<Option<Bodies>>,
    /// Whether results may lie in buffers that the caller is given.
    pub(crate) gives: bool,
}

/// Plans `graph`.
pub fn plan(graph: &Graph, target: Target) -> Plan {
    let mut plan = plan_part(graph.clone(), target, target != Target::Device);
    subgraphs::settle(&mut plan);
    plan
}

/// Plans a graph, which may give results away, or what a branch or loop runs. What branches and loops in it run lies relative to their
/// own scratch memory.
pub(crate) fn plan_part(mut graph: Graph, target: Target, gives: bool) -> Plan {
    let mut direct = place_assignments(&mut graph);
    let effects = effects(&graph);
    let bodies = subgraphs::plan(&mut graph, &direct, target);
    direct.resize(graph.values.len(), None);
    let decided = Decided { direct, bodies, gives };
    let mut edges = edges(&graph, &decided.direct);
    // Nodes with effects run in the order of the trace.
    effects.windows(2).for_each(|pair| edges[pair[1]].push(pair[0]));
    hoist_checks(&graph, &decided.direct, &mut edges);
    let orders = [in_order(&edges), lowest_first(&graph, &edges, target)];
    let layouts = orders.map(|order| Layout::new(&graph, &decided, order.into_iter().map(Step::single).collect(), target));
    let [first, second] = layouts.map(|layout| (layout.place(), layout));
    let (mut places, mut layout) = if second.0.scratch < first.0.scratch { second } else { first };
    if let Target::Host(fusion) = target {
        (places, layout) = fuse(&graph, &decided, (places, layout), fusion);
    }
    let mut steps = layout.steps;
    steps.iter_mut().for_each(|step| step.nodes.retain(|&index| !is_view(&graph, &graph.nodes[index])));
    steps.retain(|step| !step.nodes.is_empty());
    let place = |(node, bodies): (usize, Option<Bodies>)| {
        let at = places.workspaces.iter().find(|(other, _)| *other == node).map_or(0, |(_, at)| *at);
        Some(Bodies { at, ..bodies? })
    };
    let bodies = decided.bodies.into_iter().enumerate().filter_map(place).collect();
    Plan { steps, locations: places.locations, scratch: places.scratch, bodies, graph }
}

/// Lets nodes run together. Where that would take more memory, the steps that need most are taken apart again.
fn fuse<'g>(graph: &'g Graph, decided: &Decided, single: (Places, Layout<'g>), fusion: Fusion) -> (Places, Layout<'g>) {
    let order: Vec<usize> = single.1.steps.iter().flat_map(|step| step.nodes.iter().copied()).collect();
    let mut steps = fusion.steps(graph, &order);
    loop {
        let layout = Layout::new(graph, decided, steps, Target::Host(fusion));
        let places = layout.place();
        if places.scratch <= single.0.scratch {
            return (places, layout);
        }
        let Some(largest) = layout.largest_group() else { return single };
        steps = layout.steps;
        let apart = steps[largest].nodes.clone().into_iter().map(Step::single);
        steps.splice(largest..=largest, apart);
    }
}

/// True if a node gives the bytes of its input under another shape: such a node never runs. What becomes a variable's
/// value, or shows one under another type, is written all the same.
pub(crate) fn is_view(graph: &Graph, node: &Node) -> bool {
    let (Some(&input), Some(&output)) = (node.inputs.first(), node.outputs.first()) else { return false };
    let assigned = graph.captures.iter().any(|capture| capture.assigned == Some(output) || capture.assigned == Some(input));
    node.op.is_view() && !assigned && !matches!(graph.values[input].origin, Origin::Variable(_) | Origin::Constant(_))
}

pub(crate) fn producers(graph: &Graph) -> Vec<Option<usize>> {
    let mut producers = alloc::vec![None; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        node.outputs.iter().for_each(|&id| producers[id] = Some(index));
    }
    producers
}

/// Decides for each assigned variable whether the node that makes its new value can write it straight into the
/// variable; where it cannot, adds a copy. Gives, for each value, the variable whose bytes it takes.
fn place_assignments(graph: &mut Graph) -> Vec<Option<usize>> {
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

pub(crate) fn copy(graph: &mut Graph, value: ValueId) -> ValueId {
    let copy = graph.value(graph.values[value].tensor_type, Origin::Node);
    let (inputs, outputs) = (alloc::vec![value], alloc::vec![copy]);
    graph.nodes.push(Node::new(&ops::identity::OP, Vec::new(), inputs, outputs));
    copy
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

/// The nodes that read each value.
fn readers(graph: &Graph) -> Vec<Vec<usize>> {
    let mut readers: Vec<Vec<usize>> = alloc::vec![Vec::new(); graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&id| readers[id].push(index));
    }
    readers
}

/// For each node, the nodes that must run before it: makers of its inputs, and readers of a variable that it overwrites.
fn edges(graph: &Graph, direct: &[Option<usize>]) -> Vec<Vec<usize>> {
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

/// The nodes with effects, in the order of the trace. Asked for before what they run is planned, and taken from them.
fn effects(graph: &Graph) -> Vec<usize> {
    (0..graph.nodes.len()).filter(|&node| has_effect(&graph.nodes[node])).collect()
}

/// Lets nodes that may refuse their data run before any variable is written, where they do not depend on its new value.
fn hoist_checks(graph: &Graph, direct: &[Option<usize>], edges: &mut [Vec<usize>]) {
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

/// The nodes that must run before `node`.
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

/// Runs nodes whenever they are ready, choosing with `choose` among them.
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

/// The order of the trace, as far as overwritten variables allow it.
fn in_order(edges: &[Vec<usize>]) -> Vec<usize> {
    schedule(edges, |_| 0)
}

/// Always the ready node that frees most, or takes least.
fn lowest_first(graph: &Graph, edges: &[Vec<usize>], target: Target) -> Vec<usize> {
    let mut uses = graph.uses();
    let bytes = |id: ValueId| i64::from(graph.values[id].tensor_type.bytes().unwrap_or(0));
    let in_scratch = |id: ValueId| match graph.values[id].origin {
        Origin::Node => true,
        Origin::Input(_) => target == Target::Device,
        _ => false,
    };
    schedule(edges, |ready| {
        let growth = |&node: &usize| -> i64 {
            let node = &graph.nodes[node];
            let freed: i64 = node.inputs.iter().filter(|&&id| uses[id] == 1 && in_scratch(id)).map(|&id| bytes(id)).sum();
            let variables = |id: &&ValueId| !graph.captures.iter().any(|capture| capture.assigned == Some(**id));
            node.outputs.iter().filter(variables).map(|&id| bytes(id)).sum::<i64>() - freed
        };
        let chosen = (0..ready.len()).min_by_key(|&index| growth(&ready[index])).unwrap_or(0);
        graph.nodes[ready[chosen]].inputs.iter().for_each(|&id| uses[id] -= 1);
        chosen
    })
}
