//! Replay of a graph in a scope, op by op. The scope computes or records the ops, or does both.

use crate::base::dtype::Bool;
use crate::base::error::{Error, Result};
use crate::ops;
use crate::tensor::Tensor;
use crate::tensor::graph::{Control, Graph, Node, Origin, ValueId};
use crate::tensor::scope::{DeviceScope, Scope, ScopeHandle, innermost};
use alloc::vec::Vec;

/// Emits every op of `graph` into `scope` and returns the results for `inputs`. Without `scope`, emits into the scope of the inputs.
pub(crate) fn replay(graph: &Graph, scope: Option<&ScopeHandle>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut values: Vec<Option<Tensor>> = Vec::with_capacity(graph.values.len());
    for value in &graph.values {
        values.push(match &value.origin {
            Origin::Input(index) => Some(inputs.get(*index).ok_or(Error::Internal)?.clone()),
            Origin::Constant(tensor) => Some(tensor.clone()),
            Origin::Variable(index) => {
                let variable = graph.captures[*index].source.variable().ok_or(Error::Internal)?;
                Some(scope.ok_or(Error::Internal)?.read(&variable.as_argument(false))?)
            }
            Origin::Node => None,
        });
    }
    let get = |values: &[Option<Tensor>], id: ValueId| values[id].clone().ok_or(Error::Internal);
    for node in &graph.nodes {
        let inputs = node.inputs.iter().map(|&id| get(&values, id)).collect::<Result<Vec<_>>>()?;
        let around = node.name.as_deref().and_then(|name| name.rsplit_once('/'));
        let _named = around.and_then(|(around, _)| Some(scope?.name_scope(around)));
        for (&id, output) in node.outputs.iter().zip(emit(node, scope, &inputs)?) {
            values[id] = Some(output);
        }
    }
    for capture in &graph.captures {
        if let (Some(variable), Some(id), Some(scope)) = (capture.source.variable(), capture.assigned, scope) {
            scope.assign(&variable.as_argument(false), &get(&values, id)?)?;
        }
    }
    graph.outputs.iter().map(|&id| get(&values, id)).collect()
}

/// Emits a node like [`replay`] and returns its outputs for `inputs`.
pub(crate) fn emit(node: &Node, scope: Option<&ScopeHandle>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let refs: Vec<&Tensor> = inputs.iter().collect();
    let theirs = innermost(&refs)?;
    let scope = match (scope, theirs) {
        (Some(own), Some(theirs)) => Some(own.handle().deeper(theirs)),
        (own, theirs) => theirs.or(own.map(Scope::handle)),
    };
    let _there = scope.as_ref().and_then(|scope| DeviceScope::at(scope.recorder.device(), node.device));
    match (&node.rule, node.bodies.as_slice(), scope) {
        (Some(rule), [body], Some(scope)) => {
            let (own, others) = refs.split_at(node.attributes.first().map_or(0, |&own| own as usize));
            let forward = |own: &[&Tensor]| {
                let inputs: Vec<Tensor> = own.iter().chain(others).map(|&tensor| tensor.clone()).collect();
                replay(body, None, &inputs)
            };
            scope.recorder.custom(own, &forward, rule)
        }
        (Some(_), [body], None) => replay(body, None, inputs),
        (_, [], Some(scope)) => Ok(scope.emit_op(node.op, &node.attributes, &refs)?.into_iter().collect()),
        (_, [], None) => Ok(Tensor::emit(node.op, &node.attributes, &refs)?.into_iter().collect()),
        (_, bodies, scope) => {
            let control = Control { op: node.op, attributes: node.attributes.clone(), bodies: bodies.to_vec() };
            match scope {
                Some(scope) if scope.recorder.traces() => scope.recorder.control(&control, inputs),
                Some(scope) => interpret(&control, Some(&scope), inputs),
                None => interpret(&control, None, inputs),
            }
        }
    }
}

/// Runs a branch or loop on computed tensors.
pub(crate) fn interpret(control: &Control, scope: Option<&ScopeHandle>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let bodies = control.bodies.as_slice();
    if control.op.def.code == ops::code::while_loop {
        let ([condition, body], [most]) = (bodies, control.attributes.as_slice()) else { return Err(Error::Internal) };
        let (mut state, invariants) = inputs.split_at_checked(body.outputs.len()).ok_or(Error::Internal)?;
        let mut current: Vec<Tensor>;
        let mut left = *most;
        loop {
            let all: Vec<Tensor> = state.iter().chain(invariants).cloned().collect();
            let holds = left > 0 && replay(condition, scope, &all)?.first().ok_or(Error::Internal)?.item::<Bool>()?.get();
            if !holds {
                return Ok(state.to_vec());
            }
            current = replay(body, scope, &all)?;
            state = &current;
            left -= 1;
        }
    }
    let (by, inputs) = inputs.split_first().ok_or(Error::Internal)?;
    let index = match by.tensor_type() {
        crate::base::shape::TensorType::BOOL => usize::from(!by.item::<Bool>()?.get()),
        _ => usize::try_from(by.item::<i32>()?).unwrap_or(usize::MAX),
    };
    replay(bodies.get(index).or(bodies.last()).ok_or(Error::Internal)?, scope, inputs)
}
