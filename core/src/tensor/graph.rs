//! The recorded graph: what a trace makes, the optimiser rewrites and the planner lays out.

use crate::base::shape::TensorType;
use crate::base::sync::Shared;
use crate::tensor::Tensor;
use crate::tensor::scope::{CustomRule, Op};
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::vec::Vec;

/// The number of a value in its graph.
pub type ValueId = usize;

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Argument number so much.
    Input(usize),
    /// A computed tensor.
    Constant(Tensor),
    /// The value that captured variable number so much has when the graph begins.
    Variable(usize),
    /// An output of a node.
    Node,
}

/// A value of a graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its element type and shape.
    pub tensor_type: TensorType,
    /// Where it comes from.
    pub origin: Origin,
}

/// An op on values.
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
    /// What a branch, a loop or a call runs; see [`Control`].
    pub bodies: Vec<Graph>,
    /// The gradient rule that a user gave for a call's first inputs.
    pub rule: Option<Shared<dyn CustomRule>>,
    /// Where it was traced, and the op, numbered: `sequential/dense/MatMul_1`. What a body's nodes are called is within the name of
    /// the node that runs it; see [`Node::inner_name`]. Copies that a plan needs have none.
    pub name: Option<Shared<str>>,
}

impl Node {
    /// A node that runs no other graph.
    pub fn new(op: &'static Op, attributes: Vec<u32>, inputs: Vec<ValueId>, outputs: Vec<ValueId>) -> Node {
        Node { op, attributes, inputs, outputs, bodies: Vec::new(), rule: None, name: None }
    }

    /// The name that a node of body number `body`, of so many, has in the whole.
    pub fn inner_name(&self, bodies: usize, body: usize, inner: &str) -> Shared<str> {
        let Some(own) = &self.name else { return inner.into() };
        match (self.attributes.as_slice(), bodies) {
            // A call.
            (_, 1) if self.rule.is_some() => format!("{own}/{inner}"),
            // A loop.
            ([_], 2) => format!("{own}/{}/{inner}", ["cond", "body"][body.min(1)]),
            (_, 2) => format!("{own}/{}/{inner}", ["then", "else"][body.min(1)]),
            _ => format!("{own}/branch_{body}/{inner}"),
        }
        .into()
    }
}

/// True if a node does something else than to give outputs, or runs such nodes: it prints, or it may stop the run.
pub(crate) fn has_effect(node: &Node) -> bool {
    let runs = |graph: &Graph| graph.nodes.iter().any(has_effect);
    node.op.def.outputs == 0 && node.bodies.is_empty() || node.bodies.iter().any(runs)
}

/// A branch or a loop: an op that runs other graphs, which have all its inputs (a branch's first one aside, which chooses) as theirs.
///
/// - `cond`: the bodies are the branches, first that for true; or, of an integer, those for 0, 1, …: each gives all outputs.
/// - `while_loop`: the bodies are the condition and the body. The first inputs are the state, as many as there are outputs. The
///   attribute is the most iterations.
#[derive(Clone)]
pub struct Control {
    /// The op.
    pub op: &'static Op,
    /// The attribute words.
    pub attributes: Vec<u32>,
    /// What it runs.
    pub bodies: Vec<Graph>,
}

/// What a graph has from outside, beside its inputs.
#[derive(Clone, Debug)]
pub enum Captured {
    /// A variable.
    Variable(Variable),
    /// In a plan, of a branch or a loop's body: a value of the graph that runs it.
    Outer(ValueId),
}

impl Captured {
    /// The variable, if it is one.
    pub fn variable(&self) -> Option<&Variable> {
        match self {
            Captured::Variable(variable) => Some(variable),
            Captured::Outer(_) => None,
        }
    }
}

/// A variable that a graph reads or assigns.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The variable.
    pub source: Captured,
    /// Its value when the graph begins.
    pub initial: ValueId,
    /// The value that it has when the graph ends, if the graph assigns it.
    pub assigned: Option<ValueId>,
}

/// A function's body: nodes in an order in which they can run, each value written once.
///
/// Variables are versioned: a node that reads a variable names the value that it had then, and the new one takes the
/// variable's bytes only after the last reader of the old one.
#[derive(Clone, Default)]
pub struct Graph {
    /// Every value.
    pub values: Vec<Value>,
    /// Every node.
    pub nodes: Vec<Node>,
    /// The arguments.
    pub inputs: Vec<ValueId>,
    /// The results.
    pub outputs: Vec<ValueId>,
    /// The variables.
    pub captures: Vec<Capture>,
}

impl Graph {
    /// Adds a value.
    pub fn value(&mut self, tensor_type: TensorType, origin: Origin) -> ValueId {
        self.values.push(Value { tensor_type, origin });
        self.values.len() - 1
    }

    /// The constant that value `id` is, if it is one.
    pub fn constant(&self, id: ValueId) -> Option<&Tensor> {
        match &self.values[id].origin {
            Origin::Constant(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The values that must exist when the graph has run: results, and what variables are set to.
    pub fn results(&self) -> impl Iterator<Item = ValueId> {
        self.outputs.iter().copied().chain(self.captures.iter().filter_map(|capture| capture.assigned))
    }

    /// How often each value is read, by nodes and as a result.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = alloc::vec![0; self.values.len()];
        let read = self.nodes.iter().flat_map(|node| node.inputs.iter().copied());
        read.chain(self.results()).for_each(|id| uses[id] += 1);
        uses
    }

    /// Makes every reader of `from` read `to`.
    pub fn replace(&mut self, from: ValueId, to: ValueId) {
        let inputs = self.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut());
        let results = self.outputs.iter_mut().chain(self.captures.iter_mut().filter_map(|capture| capture.assigned.as_mut()));
        inputs.chain(results).filter(|id| **id == from).for_each(|id| *id = to);
    }
}
