//! Branches and loops: [`cond`], [`switch_case`], [`while_loop`].
//!
//! In a scope that computes, they are Rust's own `if` and `while`, and a tape records the ops that ran. In a trace, each body is
//! traced once and becomes a graph inside a node.

use crate::base::dtype::Bool;
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::base::sync::Shared;
use crate::ops;
use crate::tensor::Tensor;
use crate::tensor::graph::{Control, Graph, Origin, ValueId};
use crate::tensor::scope::{Scope, ScopeHandle, innermost};
use crate::tensor::structure::{Part, Structure};
use crate::tensor::variable::Variable;
use crate::trace::tracing::Tracing;
use alloc::format;
use alloc::vec::Vec;

/// Traced body of a branch or loop.
pub(crate) struct Body {
    graph: Graph,
    /// Captures from the enclosing scopes, with their values in the graph.
    outer: Vec<(Outer, ValueId)>,
    assigned: Vec<(Variable, ValueId)>,
}

#[derive(Clone)]
enum Outer {
    Tensor(Tensor),
    Variable(Variable),
}

impl Outer {
    fn is_same(&self, other: &Outer) -> bool {
        match (self, other) {
            (Outer::Tensor(own), Outer::Tensor(other)) => own.is_same(other),
            (Outer::Variable(own), Outer::Variable(other)) => own == other,
            _ => false,
        }
    }
}

/// Guard that redirects the ops of a scope, and of all scopes around it, into a body. The redirection ends on drop.
struct Lead(Vec<(ScopeHandle, Option<ScopeHandle>)>);

impl Lead {
    fn new(scope: &ScopeHandle, body: &ScopeHandle) -> Lead {
        let around = core::iter::successors(Some(scope.clone()), |scope| scope.recorder.parent().cloned());
        let lead = |scope: ScopeHandle| {
            let before = scope.recorder.body().and_then(|place| place.lock().replace(body.clone()));
            (scope, before)
        };
        Lead(around.map(lead).collect())
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        for (scope, before) in self.0.drain(..) {
            if let Some(place) = scope.recorder.body() {
                *place.lock() = before;
            }
        }
    }
}

impl Body {
    /// Traces `run` in `scope`, with inputs of the types of `arguments`. Returns the body and the result of `run`.
    pub(crate) fn trace<A: Structure, R: Structure>(
        scope: &ScopeHandle,
        arguments: &A,
        run: impl FnOnce(A) -> Result<R>,
    ) -> Result<(Body, R)> {
        let mut open = Open::new(scope);
        let arguments = open.inputs(arguments);
        let results = run(arguments)?;
        open.pause();
        Ok((open.close(&results)?, results))
    }

    /// Turns captures into inputs. Returns the graph, the captured tensors, and the assigned variables. The captures become inputs of the
    /// graph after its first `own` inputs. The last outputs of the graph are the new values of the assigned variables.
    pub(crate) fn close(self, scope: &ScopeHandle, own: usize) -> Result<(Graph, Vec<Tensor>, Vec<Variable>)> {
        let (mut graphs, inputs, assigned) = close(alloc::vec![self], scope, own)?;
        Ok((graphs.pop().ok_or(Error::Internal)?, inputs, assigned))
    }
}

/// Body that is being traced.
pub(crate) struct Open {
    tracing: Shared<Tracing>,
    lead: Option<Lead>,
}

impl Open {
    /// Redirects all ops of `scope` into a new body.
    pub(crate) fn new(scope: &ScopeHandle) -> Open {
        let tracing = Tracing::new(scope.clone(), scope.recorder.may_create(), true);
        let lead = Lead::new(scope, &ScopeHandle::new(tracing.clone()));
        Open { tracing, lead: Some(lead) }
    }

    /// Adds an input to the body for each tensor of the structure, and returns the structure with these inputs in place of its tensors.
    pub(crate) fn inputs<A: Structure>(&self, arguments: &A) -> A {
        self.tracing.inputs(arguments)
    }

    /// Ends the redirection into the body.
    pub(crate) fn pause(&mut self) {
        self.lead = None;
    }

    /// Returns the body with `results` as its outputs.
    pub(crate) fn close(self, results: &impl Structure) -> Result<Body> {
        let mut record = self.tracing.finish(results)?;
        let (mut outer, mut assigned) = (Vec::new(), Vec::new());
        for capture in core::mem::take(&mut record.graph.captures) {
            let Some(variable) = capture.source.variable() else { continue };
            outer.push((Outer::Variable(variable.clone()), capture.initial));
            assigned.extend(capture.assigned.map(|id| (variable.clone(), id)));
        }
        outer.extend(record.captured.into_iter().map(|(tensor, id)| (Outer::Tensor(tensor), id)));
        Ok(Body { graph: record.graph, outer, assigned })
    }
}

/// Adds the same inputs to all `bodies`, after the first `own` inputs: first the variables that any of the bodies assigns, then all other
/// captures. The new values of the assigned variables become outputs. Returns the graphs, the tensors for the added inputs, and the
/// assigned variables.
fn close(bodies: Vec<Body>, scope: &ScopeHandle, own: usize) -> Result<(Vec<Graph>, Vec<Tensor>, Vec<Variable>)> {
    let mut assigned: Vec<Variable> = Vec::new();
    for (variable, _) in bodies.iter().flat_map(|body| &body.assigned) {
        if !assigned.contains(variable) {
            assigned.push(variable.clone());
        }
    }
    let mut outer: Vec<Outer> = assigned.iter().cloned().map(Outer::Variable).collect();
    for (one, _) in bodies.iter().flat_map(|body| &body.outer) {
        if !outer.iter().any(|other| other.is_same(one)) {
            outer.push(one.clone());
        }
    }
    let value = |outer: &Outer| match outer {
        Outer::Tensor(tensor) => Ok(tensor.clone()),
        Outer::Variable(variable) => scope.recorder.read(variable),
    };
    let inputs = outer.iter().map(value).collect::<Result<Vec<Tensor>>>()?;
    let graphs = bodies.into_iter().map(|mut body| {
        let graph = &mut body.graph;
        for (index, (one, input)) in outer.iter().zip(&inputs).enumerate() {
            let origin = Origin::Input(own + index);
            let known = body.outer.iter().find(|(other, _)| other.is_same(one)).map(|(_, id)| *id);
            let id = known.unwrap_or_else(|| graph.value(input.tensor_type(), origin.clone()));
            graph.values[id].origin = origin;
            graph.inputs.push(id);
        }
        for (index, variable) in assigned.iter().enumerate() {
            let value = body.assigned.iter().find(|(other, _)| other == variable).map(|(_, id)| *id);
            graph.outputs.push(value.unwrap_or(graph.inputs[own + index]));
        }
        body.graph
    });
    Ok((graphs.collect(), inputs, assigned))
}

impl Control {
    /// Returns the types of the outputs of the branch or loop. Fails if the bodies return different types, or if a loop's body changes
    /// the types of the state.
    pub(crate) fn output_types(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>> {
        let types = |graph: &Graph| graph.outputs.iter().map(|&id| graph.values[id].tensor_type).collect::<Vec<_>>();
        let all: Vec<Vec<TensorType>> = self.bodies.iter().map(types).collect();
        if self.op.def.code == ops::code::while_loop {
            let [condition, body] = all.as_slice() else { return Err(Error::Internal) };
            let fits = condition.len() == 1 && inputs.get(..body.len()) == Some(body);
            return if fits {
                Ok(body.clone())
            } else {
                Err(Error::message("the body of a loop must return the types of the loop's state, but returns others"))
            };
        }
        let first = all.first().ok_or(Error::Internal)?;
        if all.iter().all(|types| types == first) {
            Ok(first.clone())
        } else {
            Err(Error::message("the branches must return the same types, but return different ones"))
        }
    }
}

/// Returns `then()` if `predicate` is true, otherwise `otherwise()`, like TensorFlow's `cond`. The predicate is a bool scalar.
///
/// In a trace, both branches are traced, and only the chosen one runs. They must then return the same structure with the same element
/// types and shapes. A variable that only one branch assigns keeps its value if the other branch runs.
///
/// ```
/// use gradlet_core::control::cond;
/// use gradlet_core::{Eager, Function, Scope, Tensor, ops};
/// let device = ops::portable_cpu();
/// let scope = Eager::new(&device);
/// let f = Function::new(|scope: &dyn Scope, x: Tensor| {
///     cond(scope, &x.less(&x.like(0.0)?)?, || x.neg(), || x.mul(&x))
/// });
/// assert_eq!(f.call(&scope, Tensor::scalar(&device, 3.0f32))?.item::<f32>()?, 9.0);
/// assert_eq!(f.call(&scope, Tensor::scalar(&device, -3.0f32))?.item::<f32>()?, 3.0);
/// assert_eq!(f.traces(), 1);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// Fails if the predicate is not a bool scalar, if the branches return different structures, or if a branch fails.
#[doc(alias = "tf.cond")]
pub fn cond<R: Structure>(
    scope: &dyn Scope,
    predicate: &Tensor,
    then: impl FnOnce() -> Result<R>,
    otherwise: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let scope = meeting(scope, &[predicate])?;
    if predicate.tensor_type() != TensorType::BOOL {
        return Err(Error::message(format!("cond's predicate must be bool[], not {}", predicate.tensor_type())));
    }
    if !scope.recorder.traces() {
        return if predicate.item::<Bool>()?.get() { then() } else { otherwise() };
    }
    let (first, results) = Body::trace(&scope, &(), |()| then()?.carried(&scope, None))?;
    let (second, others) = Body::trace(&scope, &(), |()| otherwise()?.carried(&scope, Some(&results)))?;
    agree(&results, &others, ["the branch for true", "the branch for false"])?;
    record(&scope, predicate, alloc::vec![first, second], &results)
}

/// Runs branch number `index` of `branches`, or the last one if there is no such branch, like TensorFlow's `switch_case`. The index
/// is an i32 scalar. In a trace, the rules of [`cond`] apply.
///
/// ```
/// use gradlet_core::control::switch_case;
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let device = ops::portable_cpu();
/// let tens = |n: f32| Tensor::scalar(&device, n * 10.0);
/// let branches: [&dyn Fn() -> gradlet_core::Result<Tensor>; 2] = [&|| Ok(tens(1.0)), &|| Ok(tens(2.0))];
/// let y = switch_case(&Eager::new(&device), &Tensor::scalar(&device, 9i32), &branches)?;
/// assert_eq!(y.item::<f32>()?, 20.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub fn switch_case<R: Structure>(scope: &dyn Scope, index: &Tensor, branches: &[&dyn Fn() -> Result<R>]) -> Result<R> {
    let scope = meeting(scope, &[index])?;
    if index.tensor_type() != TensorType::I32 || branches.is_empty() {
        return Err(Error::message(format!(
            "switch_case needs an i32[] index and at least one branch, but got {} and {} branches",
            index.tensor_type(),
            branches.len()
        )));
    }
    if !scope.recorder.traces() {
        let index = usize::try_from(index.item::<i32>()?).unwrap_or(usize::MAX);
        return branches.get(index).or(branches.last()).ok_or(Error::Internal)?();
    }
    branch(&scope, index, branches)
}

/// Records a branch node that runs one of `branches`. The predicate `by` chooses the branch as in [`cond`] or [`switch_case`].
pub(crate) fn branch<R: Structure>(scope: &ScopeHandle, by: &Tensor, branches: &[&dyn Fn() -> Result<R>]) -> Result<R> {
    let (mut bodies, mut results): (Vec<Body>, Vec<R>) = Default::default();
    for run in branches {
        let (body, result) = Body::trace(scope, &(), |()| run()?.carried(scope, results.last()))?;
        bodies.push(body);
        results.push(result);
    }
    for (number, pair) in results.windows(2).enumerate() {
        agree(&pair[0], &pair[1], [&format!("branch {number}"), &format!("branch {}", number + 1)])?;
    }
    let results = results.pop().ok_or(Error::Internal)?;
    record(scope, by, bodies, &results)
}

/// Records a branch node that runs one of `bodies`, which return the structure of `results`.
pub(crate) fn record<R: Structure>(scope: &ScopeHandle, by: &Tensor, bodies: Vec<Body>, results: &R) -> Result<R> {
    let (bodies, inputs, assigned) = close(bodies, scope, 0)?;
    let control = Control { op: &ops::cond::OP, attributes: Vec::new(), bodies };
    let inputs: Vec<Tensor> = core::iter::once(by.clone()).chain(inputs).collect();
    let outputs = scope.recorder.control(&control, &inputs)?;
    finish(scope, outputs, &assigned, results)
}

/// Assigns the last outputs to the variables `assigned`, and returns the other outputs in the structure of `results`.
fn finish<R: Structure>(scope: &ScopeHandle, mut outputs: Vec<Tensor>, assigned: &[Variable], results: &R) -> Result<R> {
    let values = outputs.split_off(outputs.len().saturating_sub(assigned.len()));
    assigned.iter().zip(&values).try_for_each(|(variable, value)| scope.recorder.assign(variable, value))?;
    let mut outputs = outputs.into_iter();
    let mut count = 0;
    results.tensors(&mut |_| count += 1);
    if count != outputs.len() {
        return Err(Error::Arity { got: count as u8 });
    }
    // The structure has exactly this many tensors.
    let device = scope.device();
    Ok(results.with(&mut || outputs.next().unwrap_or_else(|| Tensor::scalar(&device, 0.0f32))))
}

/// Options of [`while_loop`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WhileOptions {
    /// Maximum number of iterations, after which the loop ends even if its condition is true. In a trace, a gradient through the loop
    /// requires it, because the gradient keeps the state of every iteration.
    pub max_iterations: Option<u32>,
}

/// Calls `body` with the state while `condition` is true, like TensorFlow's `while_loop`. The condition returns a bool scalar.
///
/// In a trace, condition and body are traced once. The body must then return the structure of the state with the same host values,
/// element types and shapes. A variable that the body assigns keeps its new value in the next iteration.
///
/// ```
/// use gradlet_core::control::{WhileOptions, while_loop};
/// use gradlet_core::{Eager, Function, Scope, Tensor, ops};
/// let device = ops::portable_cpu();
/// let scope = Eager::new(&device);
/// // The sum of 0, 1, … n − 1.
/// let f = Function::new(|scope: &dyn Scope, n: Tensor| {
///     let state = (n.like(0.0)?, n.like(0.0)?);
///     let (_, sum) = while_loop(scope, WhileOptions::default(), state, |(i, _)| i.less(&n), |(i, sum)| {
///         Ok((i.add(&i.like(1.0)?)?, sum.add(&i)?))
///     })?;
///     Ok(sum)
/// });
/// assert_eq!(f.call(&scope, Tensor::scalar(&device, 5i32))?.item::<i32>()?, 10);
/// assert_eq!(f.call(&scope, Tensor::scalar(&device, 0i32))?.item::<i32>()?, 0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// Fails if the condition is not a bool scalar, if the body changes types or host values, or if the condition or the body fails.
#[doc(alias = "tf.while_loop")]
pub fn while_loop<S: Structure>(
    scope: &dyn Scope,
    options: WhileOptions,
    state: S,
    condition: impl Fn(&S) -> Result<Tensor>,
    body: impl Fn(S) -> Result<S>,
) -> Result<S> {
    let scope = meeting(scope, &tensors(&state).iter().collect::<Vec<_>>())?;
    let most = options.max_iterations.unwrap_or(u32::MAX);
    let condition = |state: &S| {
        let holds = condition(state)?;
        let right = holds.tensor_type() == TensorType::BOOL;
        if right { Ok(holds) } else { Err(Error::message(format!("a loop's condition must be bool[], not {}", holds.tensor_type()))) }
    };
    if !scope.recorder.traces() {
        let (mut state, mut iterations) = (state, 0);
        while iterations < most && condition(&state)?.item::<Bool>()?.get() {
            state = body(state)?;
            iterations += 1;
        }
        return Ok(state);
    }
    let mut state = state.carried(&scope, None)?;
    let (holds, next) = loop {
        let (holds, _) = Body::trace(&scope, &state, |state| condition(&state))?;
        let (next, results) = Body::trace(&scope, &state, |state| body(state)?.carried(&scope, None))?;
        match agree(&state, &results, ["the state before the loop", "the state after one iteration"]) {
            Ok(()) => break (holds, next),
            // The body may have determined properties of the state that were unknown before.
            Err(error) => {
                state = state.carried(&scope, Some(&results))?;
                agree(&state, &results, [""; 2]).map_err(|_| error)?;
            }
        }
    };
    record_loop(&scope, most, [holds, next], &state)
}

fn tensors(state: &impl Structure) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    state.tensors(&mut |tensor| tensors.push(tensor.clone()));
    tensors
}

/// Records a loop node that starts with `state` and runs the second body while the first one returns true, but at most `most` times.
pub(crate) fn record_loop<S: Structure>(scope: &ScopeHandle, most: u32, bodies: [Body; 2], state: &S) -> Result<S> {
    if let Some((variable, _)) = bodies[0].assigned.first() {
        return Err(Error::message(format!("a loop's condition cannot assign variables, but it assigns {:?}", variable.name())));
    }
    let tensors = tensors(state);
    let (mut bodies, inputs, assigned) = close(bodies.into(), scope, tensors.len())?;
    // The condition does not return variables.
    bodies[0].outputs.truncate(1);
    let control = Control { op: &ops::while_loop::OP, attributes: alloc::vec![most], bodies };
    let inputs: Vec<Tensor> = tensors.into_iter().chain(inputs).collect();
    let outputs = scope.recorder.control(&control, &inputs)?;
    finish(scope, outputs, &assigned, state)
}

/// Returns the innermost of `scope` and the scopes of the tensors.
pub(crate) fn meeting(scope: &dyn Scope, tensors: &[&Tensor]) -> Result<ScopeHandle> {
    let own = scope.handle();
    let mode = own.mode();
    Ok(innermost(tensors)?.unwrap_or(own.clone()).deeper(own).in_mode(mode))
}

/// Checks that two structures have the same parts, except for the values of tensors. The error calls the structures by `names`.
fn agree<S: Structure>(one: &S, other: &S, names: [&str; 2]) -> Result<()> {
    #[derive(PartialEq)]
    enum Shape {
        Tensor(TensorType),
        Host(u64),
        Variable(usize),
    }
    let parts = |structure: &S| {
        let mut parts = Vec::new();
        structure.visit(&mut |part| {
            parts.push(match part {
                Part::Tensor(tensor) => Shape::Tensor(tensor.tensor_type()),
                Part::Host(value) => Shape::Host(value),
                Part::Variable(variable) => Shape::Variable(variable.id()),
            });
        });
        parts
    };
    let (own, others) = (parts(one), parts(other));
    let [first, second] = names;
    let differ = (0..own.len().max(others.len())).find(|&index| own.get(index) != others.get(index));
    match differ.map(|index| (index, own.get(index), others.get(index))) {
        None => Ok(()),
        Some((index, Some(Shape::Tensor(own)), Some(Shape::Tensor(other)))) => {
            Err(Error::message(format!("value {index} is {own} in {first}, but {other} in {second}")))
        }
        Some((index, ..)) => Err(Error::message(format!(
            "value {index} is not the same in {first} and {second}: host values must be the same, only tensors can differ"
        ))),
    }
}
