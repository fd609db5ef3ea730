//! Recorded graph. A trace creates it, the graph optimizer rewrites it, and the planner lays it out in memory.

use crate::base::quantization::AffineQuantization;
use crate::base::shape::TensorType;
use crate::base::sync::Shared;
use crate::tensor::Tensor;
use crate::tensor::scope::{CustomRule, Op};
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::vec::Vec;

/// Number of a value in its graph.
pub type ValueId = usize;

/// Origin of a value.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Argument with this index.
    Input(usize),
    /// Constant: a computed tensor.
    Constant(Tensor),
    /// Value that the capture with this index has when the graph begins to run. A capture is a variable or, in the plan of a body, a
    /// value of the enclosing graph.
    Variable(usize),
    /// Output of a node.
    Node,
}

/// Value of a graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Element type and shape.
    pub tensor_type: TensorType,
    /// Origin of the value.
    pub origin: Origin,
    /// Scales and zero points, if the elements are quantised.
    pub quantization: Option<Shared<AffineQuantization>>,
}

/// Op applied to values.
#[derive(Clone)]
pub struct Node {
    /// The op.
    pub op: &'static Op,
    /// The attribute words.
    pub attributes: Vec<u32>,
    /// The inputs.
    pub inputs: Vec<ValueId>,
    /// The outputs.
    pub outputs: Vec<ValueId>,
    /// Bodies that a branch, a loop or a call runs: see [`Control`].
    pub bodies: Vec<Graph>,
    /// Gradient rule that a user defined for the first inputs of a call. `None` for every other node.
    pub rule: Option<Shared<dyn CustomRule>>,
    /// Name scope at the time of the trace, followed by the op and a number: `sequential/dense/MatMul_1`. The names of a body's nodes
    /// are relative to the node that runs the body: see [`Node::inner_name`]. Copies that a plan inserts have no name.
    pub name: Option<Shared<str>>,
    /// Index of the device that the program names for the node, among the devices of its group: see
    /// [`Scope::with_device`](crate::Scope::with_device).
    pub device: Option<u32>,
}

impl Node {
    /// Creates a node that runs no other graph.
    pub fn new(op: &'static Op, attributes: Vec<u32>, inputs: Vec<ValueId>, outputs: Vec<ValueId>) -> Node {
        Node { op, attributes, inputs, outputs, bodies: Vec::new(), rule: None, name: None, device: None }
    }

    /// Returns the full name of a node in body number `body` of this node. `inner` is the name of that node inside the body, and
    /// `bodies` is the number of bodies of this node.
    pub fn inner_name(&self, bodies: usize, body: usize, inner: &str) -> Shared<str> {
        let Some(own) = &self.name else { return inner.into() };
        match (self.attributes.as_slice(), bodies) {
            // Call
            (_, 1) if self.rule.is_some() => format!("{own}/{inner}"),
            // Loop
            ([_], 2) => format!("{own}/{}/{inner}", ["cond", "body"][body.min(1)]),
            (_, 2) => format!("{own}/{}/{inner}", ["then", "else"][body.min(1)]),
            _ => format!("{own}/branch_{body}/{inner}"),
        }
        .into()
    }
}

/// True if a node has an effect beyond its outputs, such as printing, stopping the run or sending data, or has a body with such a node.
pub(crate) fn has_effect(node: &Node) -> bool {
    let runs = |graph: &Graph| graph.nodes.iter().any(has_effect);
    node.op.exchanges || node.op.def.outputs == 0 && node.bodies.is_empty() || node.bodies.iter().any(runs)
}

/// Branch or loop: an op that runs other graphs. Each of these graphs receives all inputs of the op as its own, except that the first
/// input of a branch only selects the body.
///
/// - `cond`: the bodies are the branches. Each returns all outputs. For a bool, the first body is the one for true. For an integer,
///   the bodies are those for 0, 1, and so on.
/// - `while_loop`: the bodies are the condition and the loop body. The first inputs are the state, one for each output. The attribute
///   is the maximum number of iterations.
#[derive(Clone)]
pub struct Control {
    /// The op.
    pub op: &'static Op,
    /// The attribute words.
    pub attributes: Vec<u32>,
    /// The bodies.
    pub bodies: Vec<Graph>,
}

/// External source of a value of a graph, other than an input.
#[derive(Clone, Debug)]
pub enum Captured {
    /// Variable.
    Variable(Variable),
    /// Value of the enclosing graph. It occurs only in the plan of a branch or loop body.
    Outer(ValueId),
}

impl Captured {
    /// Returns the variable, or `None` for an outer value.
    pub fn variable(&self) -> Option<&Variable> {
        match self {
            Captured::Variable(variable) => Some(variable),
            Captured::Outer(_) => None,
        }
    }
}

/// Variable or outer value that a graph reads or assigns.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The variable or outer value.
    pub source: Captured,
    /// Its value when the graph begins.
    pub initial: ValueId,
    /// Its value when the graph ends, if the graph assigns it.
    pub assigned: Option<ValueId>,
}

/// Body of a function: nodes in an executable order. Each value is written once.
///
/// Variables are versioned. A node that reads a variable refers to the value at that point. The new value takes the variable's bytes
/// only after the last reader of the old value.
#[derive(Clone, Default)]
pub struct Graph {
    /// All values.
    pub values: Vec<Value>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// The arguments.
    pub inputs: Vec<ValueId>,
    /// The results.
    pub outputs: Vec<ValueId>,
    /// The captured variables and outer values.
    pub captures: Vec<Capture>,
}

impl Graph {
    /// Adds a value and returns its number.
    pub fn value(&mut self, tensor_type: TensorType, origin: Origin) -> ValueId {
        self.values.push(Value { tensor_type, origin, quantization: None });
        self.values.len() - 1
    }

    /// Returns the tensor of value `id` if that value is a constant, otherwise `None`.
    pub fn constant(&self, id: ValueId) -> Option<&Tensor> {
        match &self.values[id].origin {
            Origin::Constant(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Returns the values that must exist after a run: the results and the final values of assigned variables.
    pub fn results(&self) -> impl Iterator<Item = ValueId> {
        self.outputs.iter().copied().chain(self.captures.iter().filter_map(|capture| capture.assigned))
    }

    /// Counts the uses of each value, as a node's input and as a result.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = alloc::vec![0; self.values.len()];
        let read = self.nodes.iter().flat_map(|node| node.inputs.iter().copied());
        read.chain(self.results()).for_each(|id| uses[id] += 1);
        uses
    }

    /// Replaces `from` by `to` in all nodes and results.
    pub fn replace(&mut self, from: ValueId, to: ValueId) {
        let inputs = self.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut());
        let results = self.outputs.iter_mut().chain(self.captures.iter_mut().filter_map(|capture| capture.assigned.as_mut()));
        inputs.chain(results).filter(|id| **id == from).for_each(|id| *id = to);
    }
}
