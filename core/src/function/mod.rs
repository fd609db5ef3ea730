//! Functions that are traced once for each signature and then run compiled.

mod concrete;
mod listing;
mod retracing;
mod signature;
#[cfg(test)]
mod tests;

pub use crate::tensor::structure::{Part, Structure};
pub use concrete::ConcreteFunction;
pub use signature::TensorSpec;

/// The graph of a traced function.
pub mod graph {
    pub use crate::tensor::graph::{Capture, Captured, Control, Graph, Node, Origin, Value, ValueId};
}

use crate::base::error::Result;
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared, ThreadSafe};
use crate::host::executable::Caller;
use crate::host::kernel_step::Scratch;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::{Captured, Graph};
use crate::tensor::profile::Activity;
use crate::tensor::scope::{Scope, ScopeHandle, deepest};
use crate::tensor::structure;
use crate::tensor::variable::Variable;
use crate::trace::copies;
use crate::trace::replay::replay;
use crate::trace::tracing::Tracing;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use retracing::Retracing;
use signature::{ArgumentPart, Trace, check, misplaced};

/// Maximum number of plans that a function keeps. The least recently used plan is dropped first.
pub const MAX_PLANS: usize = 64;

/// A part of the arguments that a plan depends on.
#[derive(PartialEq)]
enum Key {
    Tensor(TensorType),
    Host(u64),
    /// The variable's identity.
    Variable(usize),
}

#[cfg(target_has_atomic = "ptr")]
type Body<A, R> = Box<dyn Fn(&dyn Scope, A) -> Result<R> + Send + Sync>;
#[cfg(not(target_has_atomic = "ptr"))]
type Body<A, R> = Box<dyn Fn(&dyn Scope, A) -> Result<R>>;

/// A function that is traced on its first call with each signature and afterwards runs compiled: TensorFlow's `tf.function`.
///
/// ```
/// use gradlet_core::{Eager, Function, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let double = Function::new(|_: &dyn Scope, x: Tensor| x.add(&x));
/// let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
/// assert_eq!(double.call(&scope, x.clone())?.to_vec::<f32>()?, [2.0, 4.0]);
/// assert_eq!(double.call(&scope, x)?.to_vec::<f32>()?, [2.0, 4.0]); // does not trace again
/// assert_eq!(double.traces(), 1);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// A plan has fixed shapes. The last [`MAX_PLANS`] plans that were used are kept and share their scratch memory. A call that needs
/// another plan, even one that was dropped, runs the body again.
#[doc(alias = "tf.function")]
pub struct Function<A, R> {
    body: Body<A, R>,
    name: String,
    signature: Option<Vec<TensorSpec>>,
    relaxed: bool,
    scratch: Shared<Scratch>,
    state: Lock<State<R>>,
}

struct State<R> {
    /// At most [`MAX_PLANS`] plans, the most recently used one last.
    plans: Vec<Planned<R>>,
    traces: Vec<Trace>,
    retracing: Retracing,
}

/// A function planned for the types of one call.
struct Planned<R> {
    key: Vec<Key>,
    concrete: Shared<ConcreteFunction>,
    /// For each captured variable, whether it was trainable during the trace. The body may depend on it, as a tape does.
    trainable: Vec<bool>,
    /// The structure that the body returned, with the tensors of the trace.
    results: Shared<R>,
}

impl<R> Planned<R> {
    /// True if no captured variable was frozen or unfrozen since the trace.
    fn is_current(&self) -> bool {
        self.concrete.captured().zip(&self.trainable).all(|(variable, &trainable)| variable.trainable() == trainable)
    }
}

type Found<R> = (Shared<ConcreteFunction>, Shared<R>);

impl<A: Structure, R: Structure> Function<A, R> {
    /// Creates a function from `body`, which runs only to trace it.
    #[cfg(target_has_atomic = "ptr")]
    pub fn new<F: Fn(&dyn Scope, A) -> Result<R> + Send + Sync + 'static>(body: F) -> Function<A, R> {
        Function::of(Box::new(body), core::any::type_name::<F>())
    }

    /// Creates a function from `body`, which runs only to trace it.
    #[cfg(not(target_has_atomic = "ptr"))]
    pub fn new<F: Fn(&dyn Scope, A) -> Result<R> + 'static>(body: F) -> Function<A, R> {
        Function::of(Box::new(body), core::any::type_name::<F>())
    }

    fn of(body: Body<A, R>, name: &str) -> Function<A, R> {
        let state = State { plans: Vec::new(), traces: Vec::new(), retracing: Retracing::default() };
        Function {
            body,
            name: name.into(),
            signature: None,
            relaxed: false,
            scratch: Shared::new(Scratch::new(name)),
            state: Lock::new(state),
        }
    }

    /// Sets the name of the function, for warnings, errors and listings.
    pub fn named(self, name: &str) -> Self {
        Function { name: name.into(), scratch: Shared::new(Scratch::new(name)), ..self }
    }

    /// Restricts the function to tensors of these types, in the order of its arguments: TensorFlow's `input_signature`.
    ///
    /// Plans have fixed shapes, so the body runs again to plan each new shape. That counts as the same trace and causes no warning.
    ///
    /// ```
    /// use gradlet_core::{DType, Eager, Function, Scope, Tensor, TensorSpec, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let rows = TensorSpec::new(DType::F32, &[None, Some(2)]).named("rows");
    /// let f = Function::new(|_: &dyn Scope, rows: Tensor| rows.sum(&[], false)).named("f").with_signature(&[rows]);
    /// for count in [1, 3] {
    ///     let ones = Tensor::full(&scope.device(), 1.0f32, &[count, 2])?;
    ///     assert_eq!(f.call(&scope, ones)?.item::<f32>()?, 2.0 * count as f32);
    /// }
    /// assert_eq!(f.traces(), 1);
    /// let wrong = f.call(&scope, Tensor::full(&scope.device(), 1.0f32, &[2, 3])?).err().unwrap();
    /// assert_eq!(wrong.to_string(), "argument 0 of f must be rows: f32[?,2], got f32[2,3]");
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn with_signature(self, signature: &[TensorSpec]) -> Self {
        Function { signature: Some(signature.into()), ..self }
    }

    /// Lets dimensions that differ from those of earlier calls become unknown, so that further calls count as the same trace:
    /// TensorFlow's `reduce_retracing`. As with [`Function::with_signature`], the body runs again for each new shape.
    pub fn reduce_retracing(self) -> Self {
        Function { relaxed: true, ..self }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Calls the function. In an `Eager` scope it runs compiled. In a tape or a trace, the ops of its graph become part of that tape or
    /// trace. The body therefore runs only to trace it, wherever the function is called.
    ///
    /// Fails if an op of the body fails, and if an argument does not match the signature. Fails if an argument is on another device than
    /// `scope`, and the device of `scope` belongs to no group. Fails with [`Error::LateVariable`](crate::Error::LateVariable) if the body
    /// creates a variable in a later trace.
    pub fn call(&self, scope: &dyn Scope, arguments: A) -> Result<R> {
        // As with ops, an argument from an inner scope moves the call into that scope.
        let mut inner = Ok(None);
        arguments.tensors(&mut |tensor| inner = core::mem::replace(&mut inner, Ok(None)).and_then(|inner| deepest(inner, tensor)));
        let scope = inner?.unwrap_or(scope.handle()).deeper(scope.handle()).in_mode(scope.handle().mode());
        let device = scope.device();
        if device.placement().is_none() {
            self.check_devices(&device, &arguments)?;
        }
        if scope.recorder.parent().is_none() {
            let caller = Caller::on(&device);
            return caller.during(Activity::Function(&self.name), || self.compute(&scope, &caller, &arguments));
        }
        let (concrete, results) = self.traced(&scope, &arguments, true)?;
        let mut inputs = Vec::new();
        arguments.tensors(&mut |tensor| inputs.push(tensor.clone()));
        let mut outputs = replay(concrete.traced(), Some(&scope), &inputs)?.into_iter();
        // The graph has exactly as many outputs as the structure has tensors, so the fallback scalar is never used.
        Ok(results.with(&mut || outputs.next().unwrap_or_else(|| Tensor::scalar(&concrete.device, 0.0f32))))
    }

    /// Checks that the arguments are on the function's device.
    fn check_devices(&self, device: &Device, arguments: &A) -> Result<()> {
        let (mut index, mut checked) = (0, Ok(()));
        arguments.tensors(&mut |tensor| {
            match tensor.buffer() {
                Ok(buffer) if buffer.device() != device && checked.is_ok() => {
                    checked = Err(misplaced(&self.name, self.signature.as_deref().unwrap_or_default(), index, buffer.device(), device));
                }
                // A traced tensor has no buffer; it is on the scope's device.
                _ => (),
            }
            index += 1;
        });
        checked
    }

    /// Runs the compiled function.
    fn compute(&self, scope: &ScopeHandle, caller: &Caller<'_>, arguments: &A) -> Result<R> {
        let (concrete, results) = caller.during(Activity::Gap("find the trace"), || self.traced(scope, arguments, true))?;
        concrete.compute(caller, |take| arguments.tensors(take), |next| results.with(next))
    }

    /// Returns the function as traced for arguments of these types, for inspection or export. Arguments without values are
    /// [symbolic](Tensor::symbolic).
    pub fn concrete(&self, scope: &dyn Scope, arguments: &A) -> Result<Shared<ConcreteFunction>> {
        Ok(self.traced(&scope.handle(), arguments, false)?.0)
    }

    fn traced(&self, scope: &ScopeHandle, arguments: &A, called: bool) -> Result<Found<R>> {
        let device = scope.device();
        let mut state = self.state.lock();
        let fits = |planned: &Planned<R>| {
            let mut rest = planned.key.iter();
            let mut same = planned.concrete.device.is_like(&device);
            keys(scope, arguments, &mut |key| same &= rest.next() == Some(&key));
            same && rest.next().is_none() && planned.is_current()
        };
        if let Some(index) = state.plans.iter().rposition(fits) {
            let planned = state.plans.remove(index);
            let found = (planned.concrete.clone(), planned.results.clone());
            state.plans.push(planned);
            if called {
                state.retracing.called();
            }
            return Ok(found);
        }
        let first = state.plans.is_empty();
        drop(state);
        self.plan(scope, arguments, first, called)
    }

    /// Traces and plans the function for these arguments. If `first` is true, the body may create variables. If `called` is true, the trace
    /// counts for the warning about frequent retracing.
    fn plan(&self, scope: &ScopeHandle, arguments: &A, first: bool, called: bool) -> Result<Found<R>> {
        let device = scope.device();
        let parts = self.parts(scope, arguments)?;
        let (graph, results) = match self.rebound(scope, arguments) {
            Some(found) => found,
            None => {
                // The trace is made over the outermost scope, so it is the same wherever the function is called.
                let may_create = first && scope.recorder.may_create();
                let (graph, results) = Tracing::function(&scope.outermost(), may_create, arguments, &self.body)?;
                (graph, Shared::new(results))
            }
        };
        copies::check(scope, &graph).map_err(|error| error.context(self.name.clone()))?;
        let mut concrete = ConcreteFunction::new(&self.name, graph, device.clone(), self.scratch.clone())?;
        let mut state = self.state.lock();
        let known = state.traces.iter().position(|trace| trace.takes(&device, &parts));
        let index = known.unwrap_or(state.traces.len());
        if known.is_none() {
            let relax = |parts: Vec<ArgumentPart>, trace: &Trace| trace.relaxed(&device, &parts).unwrap_or(parts);
            let parts = if self.relaxed { state.traces.iter().fold(parts, relax) } else { parts };
            state.traces.push(Trace { device: device.clone(), parts });
        }
        let warning = match (called, known) {
            (true, None) => state.retracing.traced(&self.name),
            (true, Some(_)) => {
                state.retracing.called();
                None
            }
            (false, _) => None,
        };
        concrete.signature = state.traces[index].specs();
        let trainable = concrete.captured().map(Variable::trainable).collect();
        let concrete = Shared::new(concrete);
        let key = keys_of(scope, arguments);
        let oldest = (state.plans.len() >= MAX_PLANS).then(|| state.plans.remove(0));
        state.plans.push(Planned { key, concrete: concrete.clone(), trainable, results: results.clone() });
        drop(state);
        // Dropped after the lock is released. A thread that runs the plan still holds it.
        drop(oldest);
        if let Some(warning) = warning {
            device.warn(format_args!("{warning}"));
        }
        Ok((concrete, results))
    }

    /// Returns a graph that was traced for other variables, with the variables of `arguments` in their place. Returns `None` if there is no
    /// such graph, for example because the body itself captures one of its arguments.
    fn rebound(&self, scope: &ScopeHandle, arguments: &A) -> Option<(Graph, Shared<R>)> {
        if copies::is_replica(scope) {
            return None;
        }
        let (device, key) = (scope.device(), keys_of(scope, arguments));
        let mut own = Vec::new();
        arguments.visit(&mut |part| {
            if let structure::Part::Variable(variable) = part {
                own.push(variable.clone());
            }
        });
        let state = self.state.lock();
        for planned in
            state.plans.iter().filter(|planned| !own.is_empty() && planned.concrete.device.is_like(&device) && planned.is_current())
        {
            let same = |(one, other): (&Key, &Key)| one == other || matches!((one, other), (Key::Variable(_), Key::Variable(_)));
            let ids = planned.key.iter().filter_map(|key| if let Key::Variable(id) = key { Some(*id) } else { None });
            let pairs: Vec<(usize, &Variable)> = ids.zip(&own).collect();
            // Equal variables must correspond to equal variables.
            let maps = |(id, variable): &(usize, &Variable)| pairs.iter().all(|(other, its)| (id == other) == (variable == its));
            let mut results = 0;
            planned.results.visit(&mut |part| results += usize::from(matches!(part, structure::Part::Variable(_))));
            if results > 0 || planned.key.len() != key.len() || !planned.key.iter().zip(&key).all(same) || !pairs.iter().all(maps) {
                continue;
            }
            if let Some(graph) = over(planned.concrete.traced(), &pairs) {
                return Some((graph, planned.results.clone()));
            }
        }
        None
    }

    /// Returns the mode of the scope, as a host value, and the parts of the arguments that a trace depends on.
    fn parts(&self, scope: &ScopeHandle, arguments: &A) -> Result<Vec<ArgumentPart>> {
        let mut types = Vec::new();
        arguments.tensors(&mut |tensor| types.push(tensor.tensor_type()));
        let specs: Vec<TensorSpec> = match &self.signature {
            Some(signature) => check(&self.name, signature, &types).map(|()| signature.clone())?,
            None => types.into_iter().map(TensorSpec::from).collect(),
        };
        let (mut specs, mut variables) = (specs.into_iter(), Vec::new());
        let mut parts = alloc::vec![ArgumentPart::Host(scope.mode().key())];
        arguments.visit(&mut |part| {
            parts.extend(match part {
                structure::Part::Tensor(_) => specs.next().map(ArgumentPart::Tensor),
                structure::Part::Host(value) => Some(ArgumentPart::Host(value)),
                structure::Part::Variable(variable) => {
                    variables.push(variable.id());
                    let same = variables.iter().position(|&id| id == variable.id()).unwrap_or(0);
                    Some(ArgumentPart::Variable(variable.tensor_type().unwrap_or(TensorType::EMPTY), same))
                }
            });
        });
        Ok(parts)
    }

    /// Returns the number of times that the function has been traced: once for each combination of signature, host values and device.
    pub fn traces(&self) -> usize {
        self.state.lock().traces.len()
    }
}

/// Returns `graph` with the variables replaced by `pairs` (identity of the old variable, new variable). Returns `None` if the body captures
/// an old variable itself, if the types differ, or if two captures would become the same variable.
fn over(graph: &Graph, pairs: &[(usize, &Variable)]) -> Option<Graph> {
    let mut graph = graph.clone();
    for capture in &mut graph.captures {
        let own = capture.source.variable()?;
        if let Some((_, other)) = pairs.iter().find(|(id, _)| *id == own.id()) {
            if !own.is_argument() || own.trainable() != other.trainable() || own.tensor_type().ok()? != other.tensor_type().ok()? {
                return None;
            }
            capture.source = Captured::Variable(other.as_argument(true));
        }
    }
    let variables: Vec<&Variable> = graph.captures.iter().filter_map(|capture| capture.source.variable()).collect();
    let distinct = (0..variables.len()).all(|index| !variables[..index].contains(&variables[index]));
    distinct.then_some(graph)
}

fn keys_of(scope: &ScopeHandle, arguments: &impl Structure) -> Vec<Key> {
    let mut all = Vec::new();
    keys(scope, arguments, &mut |key| all.push(key));
    all
}

/// Calls `visit` with the mode of the scope and the replica, as a host value, and with all parts of the arguments that a plan depends on.
fn keys(scope: &ScopeHandle, arguments: &impl Structure, visit: &mut dyn FnMut(Key)) {
    let rank = scope.recorder.role().and_then(|role| role.rank).map_or(0, |rank| rank as u64 + 1);
    visit(Key::Host(scope.mode().key() | rank << 5));
    arguments.visit(&mut |part| match part {
        structure::Part::Tensor(tensor) => visit(Key::Tensor(tensor.tensor_type())),
        structure::Part::Host(value) => visit(Key::Host(value)),
        structure::Part::Variable(variable) => visit(Key::Variable(variable.id())),
    });
}

/// Checks that functions can be shared between threads where the target has atomics.
const _: fn() = || {
    fn thread_safe<T: ThreadSafe>() {}
    thread_safe::<Tensor>();
    thread_safe::<Variable>();
    thread_safe::<Function<Tensor, Tensor>>();
};
