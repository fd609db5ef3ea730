//! The plan of a model: a closure for each operator, made before the first one runs. `Run` calls them in order.

use super::Model as Imported;
use super::node::{Emit, Node};
use super::stream::Columns;
use super::variables::Variables;
use super::{Rounding, Unsupported};
use crate::formats::tflite::{ElementType, Model, Place, Subgraph, Tensor as Described};
use gradlet_core::custom_op::Op;
use gradlet_core::ops::{broadcast_to, identity};
use gradlet_core::scope::ScopeHandle;
use gradlet_core::{DType, Device, Eager, Error, Result, Scope, Shape, Tensor, TensorType};
use std::cell::RefCell;
use std::collections::HashMap;

/// The operators of a subgraph and of those that it calls.
pub(super) struct Plan<'m> {
    model: &'m Model<'m>,
    /// For each subgraph, `None` if it is not called.
    subgraphs: Vec<Option<Planned<'m>>>,
}

struct Planned<'m> {
    emits: Vec<Emit<'m>>,
    /// Number of subgraphs in the longest chain of calls from this one, itself included.
    height: usize,
    /// For each tensor, the number of the last operator that reads it. Results of the subgraph are never read for the last time.
    last_uses: Vec<usize>,
}

/// Greatest number of subgraphs that call each other in a chain, which limits the depth of recursion.
const MAX_HEIGHT: usize = 32;

impl<'m> Plan<'m> {
    /// Plans a subgraph, and those that it calls. Fails with all operators that cannot be imported.
    pub(super) fn new(model: &'m Model<'m>, subgraph: usize) -> std::result::Result<Plan<'m>, Vec<Unsupported>> {
        let mut plan = Plan { model, subgraphs: model.subgraphs.iter().map(|_| None).collect() };
        let mut unsupported = Vec::new();
        plan.add(subgraph, &mut Vec::new(), &mut unsupported);
        if unsupported.is_empty() { Ok(plan) } else { Err(unsupported) }
    }

    /// Plans a subgraph, which the subgraphs `callers` call in a chain.
    fn add(&mut self, subgraph: usize, callers: &mut Vec<usize>, unsupported: &mut Vec<Unsupported>) {
        let (model, known) = (self.model, self.subgraphs.get(subgraph).is_none_or(Option::is_some));
        let Some(graph) = model.subgraphs.get(subgraph).filter(|_| !known) else { return };
        callers.push(subgraph);
        let (mut emits, mut height) = (Vec::new(), 1);
        let mut known = Known::new(graph);
        for (index, operator) in graph.operators.iter().enumerate() {
            let node = Node { model, graph, subgraph, operator };
            let refused = |reason| node.refused(index, reason);
            let imported = known.compute(graph, &node).and_then(|()| Ok((node.callees()?, super::table::import(&node)?)));
            let callees = match imported {
                Ok((callees, emit)) => {
                    emits.push(emit);
                    callees
                }
                Err(reason) => {
                    unsupported.push(refused(reason));
                    continue;
                }
            };
            if callees.iter().any(|callee| callers.contains(callee)) {
                unsupported.push(refused("its subgraph calls itself".into()));
                continue;
            }
            if callers.len() < MAX_HEIGHT {
                callees.iter().for_each(|&callee| self.add(callee, callers, unsupported));
            }
            let below = callees.iter().map(|&callee| self.height(callee)).max();
            height = height.max(1 + below.unwrap_or(0));
            if below.is_some_and(|below| callers.len().max(below) >= MAX_HEIGHT) {
                unsupported.push(refused(format!("more than {MAX_HEIGHT} subgraphs call each other in a chain")));
            }
        }
        for (at, output) in known.missing(&graph.outputs) {
            let reason = "no operator computes it".into();
            unsupported.push(Unsupported {
                subgraph,
                operator: graph.operators.len(),
                name: format!("output {at}, tensor {output}"),
                reason,
            });
        }
        callers.pop();
        if let Some(planned) = self.subgraphs.get_mut(subgraph) {
            *planned = Some(Planned { emits, height, last_uses: last_uses(graph) });
        }
    }

    fn height(&self, subgraph: usize) -> usize {
        self.subgraphs.get(subgraph).and_then(Option::as_ref).map_or(0, |planned| planned.height)
    }
}

fn last_uses(graph: &Subgraph<'_>) -> Vec<usize> {
    let mut last_uses = vec![0; graph.tensors.len()];
    let mut set = |tensor: usize, at: usize| last_uses.iter_mut().skip(tensor).take(1).for_each(|last| *last = at);
    for (at, operator) in graph.operators.iter().enumerate() {
        operator.inputs.iter().flatten().chain(&operator.outputs).for_each(|&tensor| set(tensor, at));
    }
    graph.outputs.iter().for_each(|&output| set(output, usize::MAX));
    last_uses
}

/// The tensors of a subgraph that have a value at some point of its operators.
struct Known(Vec<bool>);

impl Known {
    fn new(graph: &Subgraph<'_>) -> Known {
        let mut known: Vec<bool> = graph.tensors.iter().map(|tensor| tensor.constant().is_some() || tensor.is_variable).collect();
        graph.inputs.iter().for_each(|&input| known.iter_mut().skip(input).take(1).for_each(|known| *known = true));
        Known(known)
    }

    /// Returns the tensors of a list that have no value, with their positions in the list.
    fn missing<'l>(&self, list: &'l [usize]) -> impl Iterator<Item = (usize, usize)> + use<'_, 'l> {
        list.iter().copied().enumerate().filter(|&(_, index)| self.0.get(index) == Some(&false))
    }

    /// Adds the outputs of an operator. Fails if one of its inputs has no value.
    fn compute(&mut self, graph: &Subgraph<'_>, node: &Node<'_>) -> std::result::Result<(), String> {
        let missing = node.operator.inputs.iter().enumerate().find_map(|(at, index)| {
            let index = (*index)?;
            (self.0.get(index) == Some(&false)).then_some((at, index))
        });
        for &output in &node.operator.outputs {
            if let Some(known) = self.0.get_mut(output) {
                *known = true;
            }
        }
        let Some((at, index)) = missing else { return Ok(()) };
        let name = graph.tensors.get(index).map_or("", |tensor| tensor.name);
        Err(format!("its input {at}, {}, has no value", Place("tensor", index, &name)))
    }
}

/// Receiver of the tensors that operators compute, with the numbers of the subgraph and of the tensor.
pub(super) type Observe<'r> = &'r mut dyn FnMut(usize, usize, &Tensor);

/// A call of a plan.
pub(super) struct Run<'r, 'm> {
    plan: &'r Plan<'m>,
    model: &'r Imported,
    scope: ScopeHandle,
    device: Device,
    observe: RefCell<Observe<'r>>,
    constants: RefCell<HashMap<Constant, Tensor>>,
}

/// Key of a constant: its subgraph, its tensor, and the order of its axes if it is transposed.
type Constant = (usize, usize, Vec<usize>);

impl<'r, 'm> Run<'r, 'm> {
    pub(super) fn new(plan: &'r Plan<'m>, model: &'r Imported, scope: ScopeHandle, observe: Observe<'r>) -> Run<'r, 'm> {
        let device = scope.device();
        Run { plan, model, scope, device, observe: RefCell::new(observe), constants: RefCell::default() }
    }

    /// Calls a subgraph.
    pub(super) fn subgraph(&self, subgraph: usize, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let planned = self.plan.subgraphs.get(subgraph).and_then(Option::as_ref).ok_or(Error::Internal)?;
        let graph = self.plan.model.subgraphs.get(subgraph).ok_or(Error::Internal)?;
        if inputs.len() != graph.inputs.len() {
            let (count, got) = (graph.inputs.len(), inputs.len());
            return Err(Error::message(format!("subgraph {subgraph} has {count} inputs, but got {got}")));
        }
        let mut values = Values(graph.tensors.iter().map(|_| None).collect());
        let mut columns = Columns::new(self.model, &self.scope);
        for (&index, input) in graph.inputs.iter().zip(inputs) {
            let input = scaled(input, graph, index)?;
            columns.push(index, &input)?;
            values.set(index, Some(input));
        }
        for (index, (operator, emit)) in graph.operators.iter().zip(&planned.emits).enumerate() {
            let node = Node { model: self.plan.model, graph, subgraph, operator };
            let emitted = columns.emitted(index, &values, |values| emit(&Inputs { run: self, node, values }));
            let outputs = emitted.and_then(|outputs| checked(&node, outputs)).map_err(|error| {
                error.context(format!("{}: {}", Place("subgraph", subgraph, &graph.name), Place("operator", index, &operator.code)))
            })?;
            for (output, value) in outputs {
                (self.observe.borrow_mut())(subgraph, output, &value);
                columns.push(output, &value)?;
                values.set(output, Some(value));
            }
            let used = operator.inputs.iter().flatten().chain(&operator.outputs);
            used.filter(|&&tensor| planned.last_uses.get(tensor) == Some(&index)).for_each(|&tensor| values.set(tensor, None));
        }
        let output = |&index: &usize| values.get(index).cloned().map_or_else(|| self.constant(subgraph, index, &[]), Ok);
        graph.outputs.iter().map(output).collect()
    }

    /// Returns a constant, transposed to the order `order` of its axes unless this is empty.
    fn constant(&self, subgraph: usize, index: usize, order: &[usize]) -> Result<Tensor> {
        let key = (subgraph, index, order.to_vec());
        if let Some(constant) = self.constants.borrow().get(&key) {
            return Ok(constant.clone());
        }
        let tensor = self.plan.model.subgraphs.get(subgraph).and_then(|graph| graph.tensors.get(index)).ok_or(Error::Internal)?;
        let constant =
            constant(&self.device, tensor, order).map_err(|error| error.context(Place("tensor", index, &tensor.name).to_string()))?;
        self.constants.borrow_mut().insert(key, constant.clone());
        Ok(constant)
    }
}

/// Returns a constant, transposed to the order `order` of its axes unless this is empty.
pub(super) fn constant(device: &Device, tensor: &Described<'_>, order: &[usize]) -> Result<Tensor> {
    let dtype = tensor.kind.dtype().ok_or_else(|| Error::message(format!("it is {}, which gradlet does not have", tensor.kind)))?;
    let data = tensor.constant().ok_or_else(|| Error::message("it has no value"))?;
    if order.is_empty() {
        return Tensor::from_bytes(device, TensorType::new(dtype, Shape::new(&tensor.dims)?), data);
    }
    let dims: Vec<u32> = order.iter().filter_map(|&axis| tensor.dims.get(axis).copied()).collect();
    Tensor::from_bytes(device, TensorType::new(dtype, Shape::new(&dims)?), &transposed(data, &tensor.dims, order, dtype.size()))
}

/// Returns a tensor of integers with the scales that the model has for it.
fn scaled(value: Tensor, graph: &Subgraph<'_>, index: usize) -> Result<Tensor> {
    let described = graph.tensors.get(index).and_then(|tensor| tensor.quantization.as_ref());
    let Some(quantization) = described.filter(|_| matches!(value.dtype(), DType::I8 | DType::U8 | DType::I16)) else { return Ok(value) };
    value.with_quantization(super::affine(quantization))
}

/// Returns the outputs of an operator with the numbers of their tensors. Fails if their number or a type is not that of the file.
fn checked(node: &Node<'_>, outputs: Vec<Tensor>) -> Result<Vec<(usize, Tensor)>> {
    let kind = |index: usize| node.graph.tensors.get(index).map(|tensor| tensor.kind);
    let wanted: Vec<usize> = node.operator.outputs.iter().copied().filter(|&index| kind(index) != Some(ElementType::RESOURCE)).collect();
    if outputs.len() != wanted.len() {
        return Err(Error::message(format!("it has {} outputs, but computes {}", wanted.len(), outputs.len())));
    }
    let checked = |(index, output): (usize, Tensor)| match kind(index) {
        Some(kind) if kind.dtype() == Some(output.dtype()) => Ok((index, scaled(output, node.graph, index)?)),
        kind => Err(Error::message(format!("its output is {}, but it computes {}", kind.unwrap_or_default(), output.tensor_type()))),
    };
    wanted.into_iter().zip(outputs).map(checked).collect()
}

/// The tensors of a subgraph that are computed and needed.
#[derive(Clone)]
pub(super) struct Values(Vec<Option<Tensor>>);

impl Values {
    pub(super) fn get(&self, index: usize) -> Option<&Tensor> {
        self.0.get(index).and_then(Option::as_ref)
    }

    pub(super) fn set(&mut self, index: usize, value: Option<Tensor>) {
        if let Some(slot) = self.0.get_mut(index) {
            *slot = value;
        }
    }
}

/// The operands of an operator in a call.
pub(super) struct Inputs<'c, 'r, 'm> {
    run: &'c Run<'r, 'm>,
    node: Node<'m>,
    values: &'c Values,
}

impl Inputs<'_, '_, '_> {
    /// Returns the scope of the call.
    pub(super) fn scope(&self) -> &ScopeHandle {
        &self.run.scope
    }

    /// Returns the device of new tensors.
    pub(super) fn device(&self) -> &Device {
        &self.run.device
    }

    /// Returns the variables of the model.
    pub(super) fn variables(&self) -> &Variables {
        &self.run.model.variables
    }

    /// Returns the rounding of the model's dense layers.
    pub(super) fn rounding(&self) -> Rounding {
        self.run.model.rounding
    }

    /// Calls a subgraph.
    pub(super) fn subgraph(&self, subgraph: usize, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        self.run.subgraph(subgraph, inputs)
    }

    /// Calls a subgraph without inputs, and computes it even if the scope of the call is a trace.
    pub(super) fn eagerly(&self, subgraph: usize) -> Result<()> {
        let scope = Eager::new(&self.run.device).handle();
        Run::new(self.run.plan, self.run.model, scope, &mut |_, _, _| ()).subgraph(subgraph, Vec::new()).map(drop)
    }

    /// Returns all inputs. Fails if an optional one is missing.
    pub(super) fn all(&self) -> Result<Vec<Tensor>> {
        (0..self.node.operator.inputs.len()).map(|at| self.get(at)).collect()
    }

    /// Returns an input. Fails if it is missing.
    pub(super) fn get(&self, at: usize) -> Result<Tensor> {
        self.optional(at)?.ok_or_else(|| Error::message(format!("input {at} is missing")))
    }

    /// Returns an input, or `None` if it is missing.
    pub(super) fn optional(&self, at: usize) -> Result<Option<Tensor>> {
        self.ordered(at, &[])
    }

    /// Returns the dimensions of an input, which for a constant or a weight are those of the file.
    pub(super) fn dims(&self, at: usize) -> Result<Vec<u32>> {
        let index = self.node.operator.inputs.get(at).copied().flatten().ok_or(Error::Arity { got: at as u8 })?;
        let weight = self.run.model.weights.as_ref().is_some_and(|weights| weights.has(index));
        match self.values.get(index).filter(|_| !weight) {
            Some(value) => Ok(value.dims().to_vec()),
            None => Ok(self.node.graph.tensors.get(index).map_or(Vec::new(), |tensor| tensor.dims.clone())),
        }
    }

    /// Returns an input with the axes in the order `order`. A constant is transposed on the host.
    pub(super) fn transposed(&self, at: usize, order: &[usize]) -> Result<Tensor> {
        self.ordered(at, order)?.ok_or_else(|| Error::message(format!("input {at} is missing")))
    }

    fn ordered(&self, at: usize, order: &[usize]) -> Result<Option<Tensor>> {
        let Some(index) = self.node.operator.inputs.get(at).copied().flatten() else { return Ok(None) };
        let weights = self.run.model.weights.as_ref().filter(|_| self.node.subgraph == 0);
        if let Some(weight) = weights.map(|weights| weights.read(self.scope(), index, order)).transpose()?.flatten() {
            return Ok(Some(weight));
        }
        match (self.values.get(index), order) {
            (Some(value), []) => Ok(Some(value.clone())),
            (Some(value), order) => Ok(Some(value.transpose(&order.iter().map(|&axis| axis as u32).collect::<Vec<_>>())?)),
            (None, order) => self.run.constant(self.node.subgraph, index, order).map(Some),
        }
    }

    /// Returns the value of an input that may be a state, or `first` with the dimensions `dims` if it is a state without a value.
    pub(super) fn state(&self, at: usize, first: &Tensor, dims: &[u32]) -> Result<Tensor> {
        self.computed(at).cloned().map_or_else(|| self.emit1(&broadcast_to::OP, dims, first), Ok)
    }

    /// Returns an input for an op that makes it larger. In a trace, the op is recorded even if the input is a constant, so the artifact
    /// does not contain the larger tensor.
    pub(super) fn growing(&self, at: usize) -> Result<Tensor> {
        self.computed(at).cloned().map_or_else(|| self.emit1(&identity::OP, &[], &self.get(at)?), Ok)
    }

    /// Returns an input that is neither a constant nor a state without a value.
    fn computed(&self, at: usize) -> Option<&Tensor> {
        self.values.get(self.node.operator.inputs.get(at).copied().flatten()?)
    }

    fn emit1(&self, op: &'static Op, attributes: &[u32], input: &Tensor) -> Result<Tensor> {
        self.scope().emit(op, attributes, &[input])?.pop().ok_or(Error::Internal)
    }
}

/// Returns the elements of a tensor with its axes in another order.
fn transposed(bytes: &[u8], dims: &[u32], order: &[usize], size: usize) -> Vec<u8> {
    let stride = |axis: usize| dims.iter().skip(axis + 1).map(|&dim| dim as usize).product::<usize>() * size;
    let axes: Vec<(usize, usize)> = order.iter().map(|&axis| (dims.get(axis).map_or(1, |&dim| dim as usize), stride(axis))).collect();
    let mut result = Vec::with_capacity(bytes.len());
    for element in 0..bytes.len() / size {
        let (mut rest, mut at) = (element, 0);
        for &(dim, stride) in axes.iter().rev() {
            at += rest % dim * stride;
            rest /= dim;
        }
        result.extend_from_slice(bytes.get(at..at + size).unwrap_or_default());
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_transposed_like_a_tensor() {
        let device = gradlet_core::ops::portable_cpu();
        let elements: Vec<i16> = (0..120).collect();
        let x = Tensor::new(&device, &elements, &[2, 3, 4, 5]).unwrap();
        for order in [[1, 2, 3, 0], [1, 2, 0, 3], [3, 1, 0, 2]] {
            let want = x.transpose(&order.map(|axis| axis as u32)).unwrap();
            assert_eq!(transposed(&x.bytes().unwrap(), x.dims(), &order, 2), *want.bytes().unwrap());
        }
        assert!(transposed(&[], &[2, 0], &[1, 0], 4).is_empty());
    }
}
