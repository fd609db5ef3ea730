//! Functions that are traced once for each signature and then run compiled.

use crate::device::Device;
use crate::error::Result;
use crate::executable::Executable;
use crate::fuse::Fusion;
use crate::graph::Graph;
use crate::scope::{Scope, deepest};
use crate::shape::TensorType;
use crate::structure::{Part, Structure};
use crate::sync::{Lock, Shared, ThreadSafe};
use crate::tensor::Tensor;
use crate::tracing::Tracing;
use crate::variable::Variable;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What a function was traced for.
#[derive(PartialEq)]
enum Key {
    Tensor(TensorType),
    Host(u64),
}

#[cfg(target_has_atomic = "ptr")]
type Body<A, R> = Box<dyn Fn(&dyn Scope, A) -> Result<R> + Send + Sync>;
#[cfg(not(target_has_atomic = "ptr"))]
type Body<A, R> = Box<dyn Fn(&dyn Scope, A) -> Result<R>>;

/// A function that is traced on its first call with each signature, and from then on runs compiled: TensorFlow's `tf.function`.
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
pub struct Function<A, R> {
    body: Body<A, R>,
    traced: Lock<Vec<Traced<R>>>,
}

/// A trace of a function.
struct Traced<R> {
    key: Vec<Key>,
    concrete: Shared<ConcreteFunction>,
    /// What the body returned, with the tensors of the trace.
    results: Shared<R>,
}

impl<A: Structure, R: Structure> Function<A, R> {
    /// A function with this body, which is run only to trace it.
    #[cfg(target_has_atomic = "ptr")]
    pub fn new(body: impl Fn(&dyn Scope, A) -> Result<R> + Send + Sync + 'static) -> Function<A, R> {
        Function { body: Box::new(body), traced: Lock::new(Vec::new()) }
    }

    /// A function with this body, which is run only to trace it.
    #[cfg(not(target_has_atomic = "ptr"))]
    pub fn new(body: impl Fn(&dyn Scope, A) -> Result<R> + 'static) -> Function<A, R> {
        Function { body: Box::new(body), traced: Lock::new(Vec::new()) }
    }

    /// Calls the function. In a tape or a trace its body becomes part of that; over `Eager` it runs compiled.
    ///
    /// Fails as the ops of its body do, and with [`Error::LateVariable`](crate::Error::LateVariable) if it creates a variable in
    /// a later trace.
    pub fn call(&self, scope: &dyn Scope, arguments: A) -> Result<R> {
        // As with ops, arguments that come from an inner scope take the call there.
        let mut inner = Ok(None);
        arguments.tensors(&mut |tensor| inner = core::mem::replace(&mut inner, Ok(None)).and_then(|inner| deepest(inner, tensor)));
        let scope = inner?.unwrap_or(scope.handle()).deeper(scope.handle()).trains(scope.training());
        if scope.recorder.parent().is_some() {
            return (self.body)(&scope, arguments);
        }
        let (concrete, results) = self.traced(&scope, &arguments)?;
        concrete.compute(|take| arguments.tensors(take), |next| results.with(next))
    }

    /// The function as traced for arguments like these: to be inspected, or exported.
    pub fn concrete(&self, scope: &dyn Scope, arguments: &A) -> Result<Shared<ConcreteFunction>> {
        Ok(self.traced(scope, arguments)?.0)
    }

    fn traced(&self, scope: &dyn Scope, arguments: &A) -> Result<(Shared<ConcreteFunction>, Shared<R>)> {
        let device = scope.device();
        let traced = self.traced.lock();
        let fits = |traced: &&Traced<R>| {
            let mut rest = traced.key.iter();
            let mut same = traced.concrete.device == device;
            keys(scope, arguments, &mut |key| same &= rest.next() == Some(&key));
            same && rest.next().is_none()
        };
        if let Some(traced) = traced.iter().find(fits) {
            return Ok((traced.concrete.clone(), traced.results.clone()));
        }
        let first = traced.is_empty();
        drop(traced);
        let (graph, results) = Tracing::function(&scope.handle().trains(scope.training()), first, arguments, &self.body)?;
        let (concrete, results) = (Shared::new(ConcreteFunction::new(graph, device)?), Shared::new(results));
        let mut key = Vec::new();
        keys(scope, arguments, &mut |part| key.push(part));
        self.traced.lock().push(Traced { key, concrete: concrete.clone(), results: results.clone() });
        Ok((concrete, results))
    }

    /// How many signatures the function has been traced for.
    pub fn traces(&self) -> usize {
        self.traced.lock().len()
    }
}

/// Calls `visit` with all that a function is traced for.
fn keys(scope: &dyn Scope, arguments: &impl Structure, visit: &mut dyn FnMut(Key)) {
    visit(Key::Host(scope.training().into()));
    arguments.visit(&mut |part| match part {
        Part::Tensor(tensor) => visit(Key::Tensor(tensor.tensor_type())),
        Part::Host(value) => visit(Key::Host(value)),
    });
}

/// A function traced for one signature.
pub struct ConcreteFunction {
    graph: Graph,
    device: Device,
    executable: Lock<Option<Executable>>,
}

impl ConcreteFunction {
    fn new(mut graph: Graph, device: Device) -> Result<ConcreteFunction> {
        crate::optimize::optimize(&mut graph)?;
        Ok(ConcreteFunction { graph, device, executable: Lock::new(None) })
    }

    /// The optimised graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs the function on computed tensors of the types that it was traced for.
    ///
    /// While it runs, the variables that it assigns are its own: whoever reads or assigns one waits for its end.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let results = self.graph.outputs.len();
        self.compute(|take| inputs.iter().for_each(take), |next| (0..results).map(|_| next()).collect())
    }

    /// The bytes that a run works with: scratch memory, results, constants and variables; its arguments are its caller's.
    pub fn planned_bytes(&self) -> Result<usize> {
        self.with_executable(|executable| executable.planned_bytes())
    }

    /// Runs the function on the tensors that `gather` gives, and gives its results to `build`.
    fn compute<R>(&self, gather: impl FnOnce(&mut dyn FnMut(&Tensor)), build: impl FnOnce(&mut dyn FnMut() -> Tensor) -> R) -> Result<R> {
        self.with_executable(|executable| executable.run(gather, build))
    }

    /// One caller at a time; the others wait.
    fn with_executable<R>(&self, work: impl FnOnce(&mut Executable) -> Result<R>) -> Result<R> {
        let mut slot = loop {
            match self.executable.try_lock() {
                Some(slot) => break slot,
                None => self.device.pause(),
            }
        };
        match &mut *slot {
            Some(executable) => work(executable),
            empty => work(empty.insert(Executable::new(&self.graph, &self.device, Fusion::of(&self.device))?)),
        }
    }
}

/// Traces `Function`s are shared between threads where the target has atomics.
const _: fn() = || {
    fn thread_safe<T: ThreadSafe>() {}
    thread_safe::<Tensor>();
    thread_safe::<Variable>();
    thread_safe::<Function<Tensor, Tensor>>();
};
