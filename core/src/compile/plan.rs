//! The result of planning: the steps of a graph in order, and the location of each value.

use crate::base::dtype::DType;
use crate::base::shape::{Shape, TensorType};
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

impl Location {
    /// Scratch memory, where it is not known yet at which byte.
    pub(crate) const SCRATCH: Location = Location::Scratch(0);
    /// A block of scratch memory for each thread, where it is not known yet at which byte.
    pub(crate) const BLOCK: Location = Location::Block(0);

    /// True if it is scratch memory.
    pub(crate) fn in_scratch(self) -> bool {
        matches!(self, Location::Scratch(_) | Location::Block(_))
    }
}

/// The runtime that a graph is planned for.
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

/// How nodes are to run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// The elements of a block: a few operands of them stay in the innermost cache.
    pub block: usize,
    /// Over how many threads blocks may be spread.
    pub threads: usize,
    /// How many elements a thread must compute to be worth its start.
    pub grain: usize,
}

/// How the elements of a group's tensors are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// How many there are.
    pub elements: usize,
    /// The elements of a row: of the operands of trailing axes, or 1.
    pub columns: usize,
    /// The elements of a block: whole rows.
    pub block: usize,
    /// Over how many threads the blocks are spread.
    pub threads: usize,
}

impl Division {
    /// One block that is everything.
    pub const NONE: Division = Division { elements: 1, columns: 1, block: 1, threads: 1 };

    /// The types of a block's tensors, by element type.
    pub(crate) fn types(&self, elements: usize) -> [TensorType; DType::ALL.len()] {
        let dims = [(elements / self.columns) as u32, self.columns as u32];
        let dims = if self.columns == 1 { &dims[..1] } else { &dims[..] };
        let shape = Shape::new(dims).unwrap_or(Shape::SCALAR);
        DType::ALL.map(|dtype| TensorType::new(dtype, shape))
    }
}

/// The plans of what a node runs.
pub struct Bodies {
    /// The node.
    pub node: usize,
    /// The plans, in the order of the node's bodies.
    pub plans: Vec<Plan>,
    /// Where their scratch memory begins in that of the graph around.
    pub(crate) at: u32,
    /// Inputs that the node updates in place, each with the output that it becomes.
    pub(crate) updates: Vec<(usize, usize)>,
}

impl Bodies {
    /// The input that output `output` is the new value of.
    pub(crate) fn updated(&self, output: usize) -> Option<usize> {
        self.updates.iter().find(|update| update.1 == output).map(|update| update.0)
    }

    /// The bytes of scratch memory that the bodies need; they run one after the other.
    pub(crate) fn workspace(&self) -> u32 {
        self.plans.iter().map(|plan| plan.scratch).max().unwrap_or(0)
    }
}

/// Decisions that precede the order of the nodes.
pub(crate) struct Decisions {
    /// The captured variable whose bytes each value takes.
    pub(crate) direct: Vec<Option<usize>>,
    /// The plans of each node's bodies, if it is a branch or a loop.
    pub(crate) bodies: Vec<Option<Bodies>>,
    /// True if results may lie in buffers that are handed to the caller.
    pub(crate) gives: bool,
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

pub(crate) fn copy(graph: &mut Graph, value: ValueId) -> ValueId {
    let copy = graph.value(graph.values[value].tensor_type, Origin::Node);
    let (inputs, outputs) = (alloc::vec![value], alloc::vec![copy]);
    graph.nodes.push(Node::new(&ops::identity::OP, Vec::new(), inputs, outputs));
    copy
}

/// The nodes that read each value.
pub(crate) fn readers(graph: &Graph) -> Vec<Vec<usize>> {
    let mut readers: Vec<Vec<usize>> = alloc::vec![Vec::new(); graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&id| readers[id].push(index));
    }
    readers
}

/// The nodes with effects, in the order of the trace. Asked for before what they run is planned, and taken from them.
pub(crate) fn effects(graph: &Graph) -> Vec<usize> {
    (0..graph.nodes.len()).filter(|&node| has_effect(&graph.nodes[node])).collect()
}
