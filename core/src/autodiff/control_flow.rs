//! Gradients of traced branches and loops.
//!
//! The gradient of a branch is a branch with the same condition. It recomputes the chosen branch under a tape.
//!
//! The gradient of a loop is a loop in reverse order. The forward loop keeps the state at the beginning of each iteration. The backward
//! loop recomputes each iteration under a tape. Only the state is therefore kept, not every intermediate value. The graph optimizer removes
//! the parts of the state that the gradient does not read.

use crate::autodiff::Differentiate;
use crate::base::error::{Error, Result};
use crate::ops;
use crate::tensor::Tensor;
use crate::tensor::graph::{Control, Graph};
use crate::tensor::scope::{Backward, Scope, ScopeHandle};
use crate::trace::control::{Body, WhileOptions, branch, while_loop};
use crate::trace::replay::replay;
use alloc::vec::Vec;

/// Branch or loop that a tape recorded.
#[derive(Clone)]
pub(crate) struct Rewind {
    /// Copy of the branch or loop without effects, because the effects have already happened when the gradient recomputes it.
    control: Control,
}

/// True if `control` is a loop. A tape that takes gradients through a loop needs the state of each iteration.
pub(crate) fn is_loop(control: &Control) -> bool {
    control.op.def.code == ops::code::while_loop
}

/// Returns a loop that does the work of `control`, counts its iterations, and keeps the state at the beginning of each one. Also returns
/// all inputs of this loop. Its outputs are the state, the count, and one stack of kept values for each part of the state.
pub(crate) fn keeping(scope: &ScopeHandle, control: &Control, inputs: &[Tensor]) -> Result<(Control, Vec<Tensor>)> {
    let missing = Error::Arity { got: inputs.len() as u8 };
    let ([condition, body], [most]) = (control.bodies.as_slice(), control.attributes.as_slice()) else { return Err(missing) };
    let states = body.outputs.len();
    let (state, others) = inputs.split_at_checked(states).ok_or(missing)?;
    let count = Tensor::scalar(&scope.device(), 0i32);
    let stacks = state.iter().map(|tensor| stack(scope, *most, tensor)).collect::<Result<Vec<_>>>()?;
    let all: Vec<Tensor> = state.iter().chain([&count]).chain(&stacks).chain(others).cloned().collect();
    // The inputs of the original loop, selected from all inputs.
    let own = |all: &[Tensor]| all[..states].iter().chain(&all[2 * states + 1..]).cloned().collect::<Vec<_>>();
    let (holds, _) = Body::trace(scope, &all, |all| replay(condition, Some(&scope.handle()), &own(&all)))?;
    let (next, _) = Body::trace(scope, &all, |all: Vec<Tensor>| {
        let mut outputs = replay(body, Some(&scope.handle()), &own(&all))?;
        let count = &all[states];
        outputs.push(count.add_scalar(1.0)?);
        for (stack, value) in all[states + 1..].iter().zip(&all[..states]) {
            outputs.push(set_row(stack, count, value)?);
        }
        Ok(outputs)
    })?;
    let bodies = [holds, next].map(|body| body.close(scope, all.len()).map(|(graph, ..)| graph));
    let bodies = bodies.into_iter().collect::<Result<_>>()?;
    Ok((Control { op: control.op, attributes: control.attributes.clone(), bodies }, all))
}

/// Returns zeros with room for a value of the type of `value` in each of `rows` iterations.
fn stack(scope: &ScopeHandle, rows: u32, value: &Tensor) -> Result<Tensor> {
    let dims: Vec<u32> = core::iter::once(rows).chain(value.dims().iter().copied()).collect();
    zeros(scope, value, &dims)
}

/// Returns zeros of the element type of `like`. An op computes them, so they are not stored as a constant.
fn zeros(scope: &ScopeHandle, like: &Tensor, dims: &[u32]) -> Result<Tensor> {
    scope.emit(&ops::broadcast_to::OP, dims, &[&like.like(0.0)?])?.pop().ok_or(Error::Internal)
}

fn set_row(stack: &Tensor, row: &Tensor, value: &Tensor) -> Result<Tensor> {
    let dims: Vec<u32> = core::iter::once(1).chain(value.dims().iter().copied()).collect();
    stack.tensor_scatter_update(&row.reshape(&[1, 1])?, &value.reshape(&dims)?)
}

/// Returns `sum + gradient`, for a sum that began with zeros. The gradient of a slice that the iteration gathered is added to that slice
/// only. The bits are the same, because a sum that began with +0 is never -0.
fn add_to(sum: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    let producer = gradient.scope()?.and_then(|scope| scope.recorder.producer(gradient));
    match producer.as_ref().map(|(op, attributes, inputs)| (op.def.code, &attributes[..], &inputs[..])) {
        Some((ops::code::gather_grad, [axis, batch_dims, _], [dy, index])) if index.dims().is_empty() => {
            Tensor::emit1(&ops::scatter_add::OP, &[*axis, *batch_dims], &[sum, dy, index])
        }
        _ => sum.add(gradient),
    }
}

fn is_float(tensor: &Tensor) -> bool {
    tensor.dtype().is_float()
}

fn without_effects(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    graph.nodes.retain(|node| !(node.bodies.is_empty() && node.outputs.is_empty()));
    for node in &mut graph.nodes {
        node.bodies = node.bodies.iter().map(without_effects).collect();
    }
    graph
}

impl Rewind {
    pub(crate) fn new(control: &Control) -> Rewind {
        let bodies = control.bodies.iter().map(without_effects).collect();
        Rewind { control: Control { bodies, ..control.clone() } }
    }

    /// Returns the gradients of the inputs, as ops in `scope`.
    pub(crate) fn gradients(&self, scope: &ScopeHandle, of: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        if is_loop(&self.control) { self.of_loop(scope, of) } else { self.of_branch(scope, of) }
    }

    fn of_branch(&self, scope: &ScopeHandle, of: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let wanted: Vec<usize> = (1..of.inputs.len()).filter(|&input| of.wanted[input] && is_float(&of.inputs[input])).collect();
        let back = |graph: &Graph| {
            let found = backward(scope, graph, &of.inputs[1..], &wanted.iter().map(|input| input - 1).collect::<Vec<_>>(), of.upstream)?;
            let found = found.into_iter().zip(&wanted).map(|(gradient, &input)| match gradient {
                Some(gradient) => Ok(gradient),
                None => zeros(&scope.handle(), &of.inputs[input], of.inputs[input].dims()),
            });
            found.collect::<Result<Vec<Tensor>>>()
        };
        let branches: Vec<_> = self.control.bodies.iter().map(|graph| move || back(graph)).collect();
        let branches: Vec<&dyn Fn() -> Result<Vec<Tensor>>> = branches.iter().map(|run| run as &dyn Fn() -> _).collect();
        let found = branch(scope, &of.inputs[0], &branches)?;
        let mut gradients = alloc::vec![None; of.inputs.len()];
        wanted.into_iter().zip(found).for_each(|(input, gradient)| gradients[input] = Some(gradient));
        Ok(gradients)
    }

    fn of_loop(&self, scope: &ScopeHandle, of: &Backward<'_>) -> Result<Vec<Option<Tensor>>> {
        let [_, body] = self.control.bodies.as_slice() else { return Err(Error::Internal) };
        let states = body.outputs.len();
        // Gradients carried from iteration to iteration, and gradients summed over the iterations.
        let carried: Vec<usize> = (0..states).filter(|&state| is_float(&of.inputs[state])).collect();
        let summed: Vec<usize> = (states..of.inputs.len()).filter(|&input| of.wanted[input] && is_float(&of.inputs[input])).collect();
        let Some((count, stacks)) = of.outputs.get(states..).and_then(<[Tensor]>::split_first) else {
            return Err(Error::message("the gradient of a traced while_loop needs max_iterations: the state of each iteration is kept"));
        };
        let start = |&input: &usize| match of.upstream.get(input).filter(|_| input < states) {
            Some(Some(gradient)) => Ok(gradient.clone()),
            _ => zeros(scope, &of.inputs[input], of.inputs[input].dims()),
        };
        let carry = carried.iter().map(start).collect::<Result<Vec<_>>>()?;
        let sums = summed.iter().map(start).collect::<Result<Vec<_>>>()?;
        let sources: Vec<usize> = carried.iter().chain(&summed).copied().collect();
        let options = WhileOptions { max_iterations: self.control.attributes.first().copied() };
        let (_, carry, sums) = while_loop(
            scope,
            options,
            (count.clone(), carry, sums),
            |(left, ..)| left.like(0.0)?.less(left),
            |(left, carry, sums)| {
                let left = left.add_scalar(-1.0)?;
                let state = stacks.iter().map(|stack| stack.gather(&left, 0)).collect::<Result<Vec<_>>>()?;
                let inputs: Vec<Tensor> = state.into_iter().chain(of.inputs[states..].iter().cloned()).collect();
                let mut upstream = alloc::vec![None; states];
                carried.iter().zip(&carry).for_each(|(&state, gradient)| upstream[state] = Some(gradient.clone()));
                let mut found = backward(scope, body, &inputs, &sources, &upstream)?;
                let contributions = found.split_off(carried.len());
                let carry = found.into_iter().zip(&carried).map(|(gradient, &state)| match gradient {
                    Some(gradient) => Ok(gradient),
                    None => zeros(&scope.handle(), &of.inputs[state], of.inputs[state].dims()),
                });
                let sums = sums.into_iter().zip(contributions).map(|(sum, gradient)| match gradient {
                    Some(gradient) => add_to(&sum, &gradient),
                    None => Ok(sum),
                });
                Ok((left, carry.collect::<Result<_>>()?, sums.collect::<Result<_>>()?))
            },
        )?;
        let mut gradients = alloc::vec![None; of.inputs.len()];
        sources.into_iter().zip(carry.into_iter().chain(sums)).for_each(|(input, gradient)| gradients[input] = Some(gradient));
        Ok(gradients)
    }
}

/// Recomputes `graph` on `inputs` under a tape. Returns the gradients with respect to the inputs at the positions `sources`. `upstream`
/// holds the gradient of each output.
fn backward(
    scope: &ScopeHandle,
    graph: &Graph,
    inputs: &[Tensor],
    sources: &[usize],
    upstream: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let tape = scope.handle().tape();
    let mut inputs = inputs.to_vec();
    for &source in sources {
        inputs[source] = tape.watch(&inputs[source])?;
    }
    let outputs = replay(graph, Some(&tape.handle()), &inputs)?;
    let pairs = outputs.iter().zip(upstream).filter(|(output, _)| is_float(output));
    let targets: Vec<(&Tensor, Option<&Tensor>)> =
        pairs.filter_map(|(output, gradient)| Some((output, Some(gradient.as_ref()?)))).collect();
    let sources: Vec<Tensor> = sources.iter().map(|&source| inputs[source].clone()).collect();
    tape.gradient_of(&targets, sources.as_slice())
}
