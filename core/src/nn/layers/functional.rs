//! Models in which a layer may use the output of any earlier layer: Keras's functional API.

use super::merge::Merge;
use super::sequential::{cut_at, input, unused};
use super::{Layer, Module, Visitor, observed_call};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::Shared;
use crate::tensor::Tensor;
use crate::tensor::scope::{Scope, ScopeHandle};
use crate::trace::tracing::dry_run;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A model with one input. Each layer takes the model's input or the outputs of layers that were added before it, so shortcuts are
/// possible. The last layer computes the model's output.
///
/// ```
/// use gradlet_core::layers::{Add, Dense, Functional, Layer, Module};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let mut model = Functional::new("residual");
/// let x = model.layer("first", Dense::new(4), Functional::INPUT);
/// let y = model.layer("second", Dense::new(4), x);
/// model.merge("sum", Add, &[x, y]);
/// let y = model.apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[2, 3])?)?;
/// assert_eq!(y.dims(), [2, 4]);
/// assert_eq!(model.named_variables()[2].0, "second/kernel");
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub struct Functional {
    name: String,
    nodes: Vec<Node>,
}

/// A value in a [`Functional`] model: its input, or the output of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(usize);

#[derive(Clone)]
struct Node {
    name: String,
    step: Stage,
    inputs: Vec<Value>,
    /// Index of the last node that uses the value of this node, or `usize::MAX` if no node uses it.
    last_use: usize,
}

#[derive(Clone)]
enum Stage {
    Layer(Shared<dyn Layer>),
    Merge(Shared<dyn Merge>),
}

impl Functional {
    /// Input of the model.
    pub const INPUT: Value = Value(0);

    /// Creates a model with this name and no layers.
    pub fn new(name: &str) -> Functional {
        Functional { name: name.into(), nodes: Vec::new() }
    }

    /// Adds a layer with the input `input`, and returns its output. If another layer already has the name, a number is appended to
    /// the name of the new layer.
    pub fn layer(&mut self, name: &str, layer: impl Layer + 'static, input: Value) -> Value {
        self.push(name, Stage::Layer(Shared::new(layer)), &[input])
    }

    /// Adds a layer that merges several values into one, and returns its output.
    pub fn merge(&mut self, name: &str, merge: impl Merge + 'static, inputs: &[Value]) -> Value {
        self.push(name, Stage::Merge(Shared::new(merge)), inputs)
    }

    fn push(&mut self, name: &str, step: Stage, inputs: &[Value]) -> Value {
        let index = self.nodes.len();
        for Value(input) in inputs {
            if let Some(node) = input.checked_sub(1).and_then(|input| self.nodes.get_mut(input)) {
                node.last_use = index;
            }
        }
        let name = unused(name, |name| self.nodes.iter().all(|node| node.name != name));
        self.nodes.push(Node { name, step, inputs: inputs.to_vec(), last_use: usize::MAX });
        Value(index + 1)
    }

    /// Returns the layers with their names, in the order of Keras's `model.layers`, which also contains the input layer.
    ///
    /// ```
    /// use gradlet_core::layers::{Dense, Functional, Module};
    /// let mut model = Functional::new("two");
    /// let x = model.layer("first", Dense::new(4), Functional::INPUT);
    /// model.layer("second", Dense::new(4), x);
    /// // Freezes all layers but the last.
    /// model.layers().rev().skip(1).for_each(|(_, layer)| layer.set_trainable(false));
    /// assert_eq!(model.trainable_variables().len(), 2);
    /// ```
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = (&str, &dyn Module)> {
        self.operations().into_iter().map(move |node| (self.nodes[node].name.as_str(), self.nodes[node].module()))
    }

    /// Divides the model after the layer `name`, like [`Sequential::cut`](super::Sequential::cut). Layers on which neither output
    /// depends are left out.
    ///
    /// Fails if there is no such layer, if it is the last one, or if a later layer also uses another value from before the cut.
    ///
    /// ```
    /// use gradlet_core::layers::{Add, Dense, Functional, Layer};
    /// use gradlet_core::{Eager, Scope, Tensor, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let mut model = Functional::new("residual");
    /// let x = model.layer("first", Dense::new(3), Functional::INPUT);
    /// let y = model.merge("sum", Add, &[x, Functional::INPUT]);
    /// model.layer("second", Dense::new(2), y);
    /// let (features, head) = model.cut("sum")?;
    /// let x = Tensor::full(&scope.device(), 1.0f32, &[1, 3])?;
    /// let y = head.call(&scope, &features.call(&scope, &x)?)?;
    /// assert_eq!(y.to_vec::<f32>()?, model.call(&scope, &x)?.to_vec::<f32>()?);
    /// assert!(model.cut("first").is_err(), "the sum also uses the input");
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn cut(&self, name: &str) -> Result<(Functional, Functional)> {
        let at = cut_at(name, self.nodes.iter().map(|node| node.name.as_str()))?;
        let before = self.needed_by(at, &[]);
        let after = self.needed_by(self.nodes.len() - 1, &before);
        for node in &after {
            let other = |Value(input): &&Value| *input != at + 1 && input.checked_sub(1).is_none_or(|input| !after.contains(&input));
            if let Some(Value(input)) = self.nodes[*node].inputs.iter().find(other) {
                let value =
                    input.checked_sub(1).map_or("the model's input".into(), |input| format!("the output of {:?}", self.nodes[input].name));
                let own = &self.nodes[*node].name;
                return Err(Error::message(format!("a cut after {name:?} is not possible, because layer {own:?} also uses {value}")));
            }
        }
        Ok((self.part(&self.name, &before, 0), self.part(&format!("{}_head", self.name), &after, at + 1)))
    }

    /// Returns the nodes on which `node` depends, and `node` itself, in the order of the model. The walk does not enter the nodes
    /// in `known`.
    fn needed_by(&self, node: usize, known: &[usize]) -> Vec<usize> {
        let mut needed = alloc::vec![false; self.nodes.len()];
        let mut open = alloc::vec![node];
        while let Some(node) = open.pop() {
            if !known.contains(&node) && !core::mem::replace(&mut needed[node], true) {
                open.extend(self.feeding(node));
            }
        }
        (0..self.nodes.len()).filter(|&node| needed[node]).collect()
    }

    /// Returns a model of the nodes with these indices. Its input takes the place of the value with the number `input`.
    fn part(&self, name: &str, nodes: &[usize], input: usize) -> Functional {
        let mut part = Functional::new(name);
        for &node in nodes {
            let Node { name, step, inputs, .. } = &self.nodes[node];
            let moved = |Value(value): &Value| {
                let position =
                    value.checked_sub(1).filter(|_| *value != input).and_then(|value| nodes.iter().position(|&node| node == value));
                Value(position.map_or(0, |position| position + 1))
            };
            part.push(name, step.clone(), &inputs.iter().map(moved).collect::<Vec<_>>());
        }
        part
    }
}

impl Functional {
    /// Returns the nodes in the order of Keras's operations: by their distance from the output, the farthest first. Nodes of equal
    /// distance keep the order in which a walk from the output to the input visits them. Nodes on which the output does not depend
    /// come last.
    fn operations(&self) -> Vec<usize> {
        let Some(last) = self.nodes.len().checked_sub(1) else { return Vec::new() };
        let mut met = Vec::new();
        let mut to_meet = alloc::vec![last];
        while let Some(node) = to_meet.pop() {
            if !met.contains(&node) {
                met.push(node);
                to_meet.extend(self.feeding(node).rev());
            }
        }
        let mut depths = alloc::vec![0usize; self.nodes.len()];
        for node in (0..self.nodes.len()).rev().filter(|node| met.contains(node)) {
            self.feeding(node).for_each(|input| depths[input] = depths[input].max(depths[node] + 1));
        }
        // The sort is stable: nodes of equal depth keep the order in which the walk visited them.
        met.sort_by_key(|&node| core::cmp::Reverse(depths[node]));
        let unused: Vec<usize> = (0..last).filter(|node| !met.contains(node)).collect();
        met.extend(unused);
        met
    }

    /// Returns the indices of the nodes whose values are inputs of the node with the index `node`.
    fn feeding(&self, node: usize) -> impl DoubleEndedIterator<Item = usize> {
        self.nodes[node].inputs.iter().filter_map(|Value(input)| input.checked_sub(1))
    }
}

impl Node {
    fn module(&self) -> &dyn Module {
        match &self.step {
            Stage::Layer(layer) => &**layer,
            Stage::Merge(merge) => &**merge,
        }
    }

    fn call(&self, scope: &dyn Scope, inputs: &[&Tensor]) -> Result<Tensor> {
        match (&self.step, inputs) {
            (Stage::Layer(layer), [x]) => layer.apply_as(&self.name, scope, x),
            (Stage::Layer(_), _) => Err(Error::Arity { got: inputs.len() as u8 }),
            (Stage::Merge(merge), inputs) => {
                let call = |scope: &ScopeHandle| {
                    let inputs = inputs.iter().map(|input| scope.input(input)).collect::<Result<Vec<_>>>()?;
                    merge.call(scope, &inputs.iter().collect::<Vec<_>>())
                };
                observed_call(&scope.handle().in_layer(true), &self.name, merge.kind(), &**merge, Tensor::tensor_type, call)
            }
        }
    }
}

impl Module for Functional {
    fn visit(&self, visitor: &mut dyn Visitor) {
        let nodes = || self.operations().into_iter().map(|node| &self.nodes[node]);
        if visitor.tracks() {
            visitor.module("_operations", &input().chain(nodes().map(Node::module)).collect::<Vec<_>>());
        } else {
            nodes().for_each(|node| visitor.module(&node.name, &node.module()));
        }
    }
}

impl Layer for Functional {
    fn name(&self) -> &str {
        &self.name
    }

    /// Returns false: the layers cast their inputs.
    fn autocast(&self) -> bool {
        false
    }

    /// Builds every layer, for f32 inputs.
    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        dry_run(scope, TensorType::new(DType::F32, *input), |scope, x| self.call(scope, x)).map(drop)
    }

    /// Does nothing: the layers are built when they are applied.
    fn ensure_built(&self, _: &dyn Scope, _: &Tensor) -> Result<()> {
        Ok(())
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let mut values: Vec<Option<Tensor>> = alloc::vec![Some(x.clone())];
        for (index, node) in self.nodes.iter().enumerate() {
            let missing = || Error::message("an input of a layer is a value of another model: pass only values that this model returned");
            let input = |Value(input): &Value| values.get(*input).and_then(Option::as_ref).ok_or_else(missing);
            let y = node.call(scope, &node.inputs.iter().map(input).collect::<Result<Vec<_>>>()?)?;
            for Value(input) in &node.inputs {
                // Frees a value after its last use.
                if *input > 0 && self.nodes[input - 1].last_use == index {
                    values[*input] = None;
                }
            }
            values.push(Some(y));
        }
        values.pop().flatten().ok_or_else(|| Error::message("the model has no layers, so it has no output: add at least one"))
    }
}
