//! The result of planning: the steps of a graph in order, and the location of each value.

use crate::base::dtype::DType;
use crate::base::shape::{Shape, TensorType};
use crate::ops;
use crate::tensor::graph::{Graph, Node, Origin, ValueId, has_effect};
use alloc::vec::Vec;

/// The location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// Flash, for a constant.
    Constant,
    /// Scratch memory, at this offset in bytes.
    Scratch(usize),
    /// The bytes of the captured variable with this index.
    Variable(usize),
    /// The caller's tensor for the argument with this index, which no step writes. Only on the host.
    Input(usize),
    /// The buffer with this index among those that are handed to the caller. Only on the host.
    Result(usize),
    /// Scratch memory at this offset in bytes, with one block for each thread. The value never exists as a whole. Only on the host.
    Block(usize),
    /// Registers of a remote device that computes a group of nodes. The value is in no memory. Only on the host.
    Register,
}

impl Location {
    /// Scratch memory, before its offset is decided.
    pub(crate) const SCRATCH: Location = Location::Scratch(0);
    /// A block of scratch memory for each thread, before its offset is decided.
    pub(crate) const BLOCK: Location = Location::Block(0);

    /// True if the location is in scratch memory.
    pub(crate) fn in_scratch(self) -> bool {
        matches!(self, Location::Scratch(_) | Location::Block(_))
    }
}

/// The runtime that a graph is planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A device. The caller copies arguments into scratch memory and reads results there.
    Device,
    /// A host. Steps read arguments from and write results to separate buffers, and elementwise nodes can be fused.
    Host(Fusion),
}

/// A step of a plan: one node, or several nodes that run together: elementwise ones, block by block, and perhaps a neighbour.
#[derive(Clone, Debug)]
pub struct Step {
    /// The nodes, in execution order.
    pub nodes: Vec<usize>,
    /// The division of their tensors into blocks.
    pub division: Division,
}

impl Step {
    /// Creates a step of one node.
    pub(crate) fn single(node: usize) -> Step {
        Step { nodes: alloc::vec![node], division: Division::NONE }
    }
}

/// A graph with an order of execution and a location for each value.
pub struct Plan {
    /// The graph, including the copies that the planner added for assignments and loops.
    pub graph: Graph,
    /// The steps, in execution order. Views have no step.
    pub steps: Vec<Step>,
    /// The location of each value.
    pub locations: Vec<Location>,
    /// Size of the scratch memory in bytes; `usize::MAX` if it does not fit in a usize.
    pub scratch: usize,
    /// The plans of the bodies of branches and loops.
    pub bodies: Vec<Bodies>,
}

/// The settings for fusing nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// Number of elements in a block. A few operands of this size fit in the innermost cache.
    pub block: usize,
    /// Maximum number of threads that share the blocks.
    pub threads: usize,
    /// Minimum number of elements that a thread must compute to make up for its start.
    pub grain: usize,
    /// True for a remote device, which keeps the values between the nodes of a group in registers. It has no blocks.
    pub registers: bool,
    /// True if a group of such a device may begin with a product, or end with a reduction.
    pub neighbours: bool,
}

/// The division of a group's tensors into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Number of elements.
    pub elements: usize,
    /// Number of elements in a row: the size of operands that are broadcast along leading axes, or 1 if there are none.
    pub columns: usize,
    /// Number of elements in a block, a multiple of the row.
    pub block: usize,
    /// Number of threads that share the blocks.
    pub threads: usize,
}

impl Division {
    /// No division: one block that contains everything.
    pub const NONE: Division = Division { elements: 1, columns: 1, block: 1, threads: 1 };

    /// Returns the tensor types of a block with this number of elements, one for each element type.
    pub(crate) fn types(&self, elements: usize) -> [TensorType; DType::ALL.len()] {
        let dims = [(elements / self.columns) as u32, self.columns as u32];
        let dims = if self.columns == 1 { &dims[..1] } else { &dims[..] };
        let shape = Shape::new(dims).unwrap_or(Shape::SCALAR);
        DType::ALL.map(|dtype| TensorType::new(dtype, shape))
    }
}

/// The plans of a node's bodies.
pub struct Bodies {
    /// Index of the node.
    pub node: usize,
    /// The plans, in the order of the node's bodies.
    pub plans: Vec<Plan>,
    /// Offset of the bodies' scratch memory within that of the surrounding graph, in bytes.
    pub(crate) at: usize,
    /// Pairs (input, output): inputs that the node updates in place, each with the output that is its new value.
    pub(crate) updates: Vec<(usize, usize)>,
}

impl Bodies {
    /// Returns the index of the input whose new value is output `output`, or `None` if there is no such input.
    pub(crate) fn updated(&self, output: usize) -> Option<usize> {
        self.updates.iter().find(|update| update.1 == output).map(|update| update.0)
    }

    /// Returns the size of the scratch memory that the bodies need, in bytes. They share it, because they run one after the other.
    pub(crate) fn workspace(&self) -> usize {
        self.plans.iter().map(|plan| plan.scratch).max().unwrap_or(0)
    }
}

/// The decisions made before the order of the nodes is chosen.
pub(crate) struct Decisions {
    /// The captured variable in whose bytes each value is written, if there is one.
    pub(crate) direct: Vec<Option<usize>>,
    /// The plans of each node's bodies; `None` for a node that is neither a branch nor a loop.
    pub(crate) bodies: Vec<Option<Bodies>>,
    /// True if results may be in buffers that are handed to the caller.
    pub(crate) gives: bool,
}

/// True if a node returns the bytes of its input under another shape; such a node never runs. A node still runs if its output is assigned
/// to a variable, if its input is a variable's old or new value, or if its input is a constant.
pub(crate) fn is_view(graph: &Graph, node: &Node) -> bool {
    let (Some(&input), Some(&output)) = (node.inputs.first(), node.outputs.first()) else { return false };
    let assigned = graph.captures.iter().any(|capture| capture.assigned == Some(output) || capture.assigned == Some(input));
    node.op.is_view() && !assigned && !matches!(graph.values[input].origin, Origin::Variable(_) | Origin::Constant(_))
}

/// True if a device that keeps values in registers can compute the node in a group, element by element. It broadcasts operands along any
/// axes.
pub(crate) fn is_by_element(node: &Node) -> bool {
    node.op.elementwise || node.op.def.code == ops::code::broadcast_to
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

/// Returns the nodes that read each value.
pub(crate) fn readers(graph: &Graph) -> Vec<Vec<usize>> {
    let mut readers: Vec<Vec<usize>> = alloc::vec![Vec::new(); graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&id| readers[id].push(index));
    }
    readers
}

/// Returns the nodes with effects, in the order of the trace. Must be called before the bodies are planned, because planning removes the
/// bodies from the nodes.
pub(crate) fn effects(graph: &Graph) -> Vec<usize> {
    (0..graph.nodes.len()).filter(|&node| has_effect(&graph.nodes[node])).collect()
}
