//! Tracing: a scope that only records, and functions that are traced once for each signature and then run compiled.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::executable::Executable;
use crate::fuse::Fusion;
use crate::graph::{Capture, Graph, Node, Origin, ValueId};
use crate::op::MAX_INPUTS;
use crate::random::Stream;
use crate::scope::{Op, Outputs, Recorder, Scope, ScopeHandle, deepest};
use crate::shape::TensorType;
use crate::sync::{Lock, Shared, ThreadSafe, Weak};
use crate::tensor::{self, Tensor};
use crate::variable::Variable;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What stands behind the scope of a function's body while it is traced.
struct Tracing {
    this: Weak<Tracing>,
    parent: ScopeHandle,
    first: bool,
    record: Lock<Record>,
}

#[derive(Default)]
struct Record {
    graph: Graph,
    /// The value that each captured variable has now.
    current: Vec<ValueId>,
}

impl Record {
    fn capture(&mut self, variable: &Variable) -> Result<usize> {
        if let Some(index) = self.graph.captures.iter().position(|capture| capture.variable == *variable) {
            return Ok(index);
        }
        let index = self.graph.captures.len();
        let initial = self.graph.value(variable.tensor_type()?, Origin::Variable(index));
        self.graph.captures.push(Capture { variable: variable.clone(), initial, assigned: None });
        self.current.push(initial);
        Ok(index)
    }
}

impl Tracing {
    fn address(&self) -> *const () {
        core::ptr::from_ref(self).cast()
    }

    fn tensor(&self, tensor_type: TensorType, id: ValueId) -> Tensor {
        Tensor::recorded(tensor_type, self.this.clone(), id as u32, None)
    }

    /// The number of `tensor` in the graph; a computed tensor becomes a constant.
    fn id(&self, tensor: &Tensor, graph: &mut Graph) -> Result<ValueId> {
        if let Some((id, _)) = tensor.in_scope(self.address()) {
            return Ok(id as ValueId);
        }
        let buffer = tensor.buffer().map_err(|_| Error::UnrelatedScopes)?;
        let same = |other: &Tensor| other.buffer().is_ok_and(|other| Shared::ptr_eq(other, buffer));
        let known = (0..graph.values.len())
            .find(|&id| graph.constant(id).is_some_and(|constant| constant.tensor_type() == tensor.tensor_type() && same(constant)));
        Ok(known.unwrap_or_else(|| {
            let constant = Tensor::shared(tensor.tensor_type(), buffer.clone());
            graph.value(tensor.tensor_type(), Origin::Constant(constant))
        }))
    }
}

impl Recorder for Tracing {
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        let types: heapless::Vec<TensorType, MAX_INPUTS> = inputs.iter().map(|tensor| tensor.tensor_type()).collect();
        let types = op.def.output_types(&types, attributes).map_err(|error| tensor::explain(op, inputs, error))?;
        let mut record = self.record.lock();
        let graph = &mut record.graph;
        let inputs = inputs.iter().map(|tensor| self.id(tensor, graph)).collect::<Result<Vec<_>>>()?;
        let types = types.iter().take(op.def.outputs.into());
        let outputs: Vec<ValueId> = types.map(|&tensor_type| graph.value(tensor_type, Origin::Node)).collect();
        let tensors = outputs.iter().map(|&id| self.tensor(graph.values[id].tensor_type, id)).collect();
        graph.nodes.push(Node { op, attributes: attributes.to_vec(), inputs, outputs });
        Ok(tensors)
    }

    fn read(&self, variable: &Variable) -> Result<Tensor> {
        let mut record = self.record.lock();
        let index = record.capture(variable)?;
        let id = record.current[index];
        Ok(self.tensor(variable.tensor_type()?, id))
    }

    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        variable.accepts(value.tensor_type())?;
        let mut record = self.record.lock();
        let index = record.capture(variable)?;
        let id = self.id(value, &mut record.graph)?;
        record.current[index] = id;
        record.graph.captures[index].assigned = Some(id);
        Ok(())
    }

    fn device(&self) -> &Device {
        self.parent.recorder.device()
    }

    fn parent(&self) -> Option<&ScopeHandle> {
        Some(&self.parent)
    }

    fn recording(&self) -> bool {
        true
    }

    fn may_create(&self) -> bool {
        self.first
    }

    fn random_state(&self) -> Result<Variable> {
        self.parent.recorder.random_state()
    }

    fn next_stream(&self) -> Result<Stream> {
        self.parent.recorder.next_stream()
    }
}

/// The arguments of a function: tensors, which it is traced for by element type and shape, and host values, which it is
/// traced for by value. Tuples of arguments are arguments.
pub trait Arguments: Sized {
    /// Calls `visit` with each tensor, and with each host value.
    fn visit(&self, visit: &mut dyn FnMut(Argument<'_>));
    /// The same arguments with the tensors that `next` gives in their place.
    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Self;
}

/// One argument.
pub enum Argument<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A host value, as what tells it from others.
    Host(u64),
}

impl Arguments for Tensor {
    fn visit(&self, visit: &mut dyn FnMut(Argument<'_>)) {
        visit(Argument::Tensor(self));
    }
    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Tensor {
        next()
    }
}

/// Whether there is one is a host value.
impl<A: Arguments> Arguments for Option<A> {
    fn visit(&self, visit: &mut dyn FnMut(Argument<'_>)) {
        visit(Argument::Host(self.is_some().into()));
        if let Some(argument) = self {
            argument.visit(visit);
        }
    }
    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Option<A> {
        self.as_ref().map(|argument| argument.with(next))
    }
}

macro_rules! host_arguments {
    ($($ty:ty: $value:ident => $key:expr),* $(,)?) => {$(
        impl Arguments for $ty {
            fn visit(&self, visit: &mut dyn FnMut(Argument<'_>)) {
                let $value = *self;
                visit(Argument::Host($key));
            }
            fn with(&self, _: &mut dyn FnMut() -> Tensor) -> $ty {
                *self
            }
        }
    )*};
}
host_arguments!(
    f32: v => v.to_bits().into(), f64: v => v.to_bits(), bool: v => v.into(),
    i32: v => v as u64, i64: v => v as u64, u32: v => v.into(), usize: v => v as u64,
);

/// The results of a function: tensors, or tuples of results.
pub trait Results: Sized {
    /// Calls `visit` with each tensor.
    fn visit(&self, visit: &mut dyn FnMut(&Tensor));
    /// The same results from the tensors that `next` gives.
    fn build(next: &mut dyn FnMut() -> Option<Tensor>) -> Option<Self>;
}

impl Results for Tensor {
    fn visit(&self, visit: &mut dyn FnMut(&Tensor)) {
        visit(self);
    }
    fn build(next: &mut dyn FnMut() -> Option<Tensor>) -> Option<Tensor> {
        next()
    }
}

macro_rules! tuples {
    ($(($($name:ident),*);)*) => {$(
        #[allow(non_snake_case, unused_variables)]
        impl<$($name: Arguments),*> Arguments for ($($name,)*) {
            fn visit(&self, visit: &mut dyn FnMut(Argument<'_>)) {
                let ($($name,)*) = self;
                $($name.visit(visit);)*
            }
            #[allow(clippy::unused_unit)]
            fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Self {
                let ($($name,)*) = self;
                ($($name.with(next),)*)
            }
        }
        #[allow(non_snake_case, unused_variables)]
        impl<$($name: Results),*> Results for ($($name,)*) {
            fn visit(&self, visit: &mut dyn FnMut(&Tensor)) {
                let ($($name,)*) = self;
                $($name.visit(visit);)*
            }
            fn build(next: &mut dyn FnMut() -> Option<Tensor>) -> Option<Self> {
                Some(($($name::build(next)?,)*))
            }
        }
    )*};
}
tuples! { (); (A); (A, B); (A, B, C); (A, B, C, D); }

/// All results that are left: so a `Vec` stands last, or alone.
impl Results for Vec<Tensor> {
    fn visit(&self, visit: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(visit);
    }
    fn build(next: &mut dyn FnMut() -> Option<Tensor>) -> Option<Vec<Tensor>> {
        Some(core::iter::from_fn(next).collect())
    }
}

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
    traced: Lock<Vec<(Vec<Key>, Shared<ConcreteFunction>)>>,
}

impl<A: Arguments, R: Results> Function<A, R> {
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
    /// Fails as the ops of its body do, and with [`Error::LateVariable`] if it creates a variable in a later trace.
    pub fn call(&self, scope: &dyn Scope, arguments: A) -> Result<R> {
        // As with ops, arguments that come from an inner scope take the call there.
        let mut inner = Ok(None);
        tensors(&arguments, &mut |tensor| inner = core::mem::replace(&mut inner, Ok(None)).and_then(|inner| deepest(inner, tensor)));
        let scope = inner?.unwrap_or(scope.handle()).deeper(scope.handle()).trains(scope.training());
        if scope.recorder.parent().is_some() {
            return (self.body)(&scope, arguments);
        }
        let concrete = self.concrete(&scope, &arguments)?;
        concrete.compute(|take| tensors(&arguments, take), |next| R::build(next))?.ok_or(Error::Arity { got: 0 })
    }

    /// The function as traced for arguments like these: to be inspected, or exported.
    pub fn concrete(&self, scope: &dyn Scope, arguments: &A) -> Result<Shared<ConcreteFunction>> {
        let device = scope.device();
        let traced = self.traced.lock();
        let fits = |(key, concrete): &&(Vec<Key>, Shared<ConcreteFunction>)| {
            let mut rest = key.iter();
            let mut same = concrete.device == device;
            keys(scope, arguments, &mut |key| same &= rest.next() == Some(&key));
            same && rest.next().is_none()
        };
        if let Some((_, concrete)) = traced.iter().find(fits) {
            return Ok(concrete.clone());
        }
        let first = traced.is_empty();
        drop(traced);
        let concrete = Shared::new(self.trace(scope, arguments, first)?);
        let mut key = Vec::new();
        keys(scope, arguments, &mut |part| key.push(part));
        self.traced.lock().push((key, concrete.clone()));
        Ok(concrete)
    }

    fn trace(&self, scope: &dyn Scope, arguments: &A, first: bool) -> Result<ConcreteFunction> {
        let tracing = Shared::new_cyclic(|this| Tracing { this: this.clone(), parent: scope.handle(), first, record: Lock::default() });
        let mut types = Vec::new();
        tensors(arguments, &mut |tensor| types.push(tensor.tensor_type()));
        let mut types = types.into_iter().enumerate();
        let arguments = arguments.with(&mut || {
            let (index, tensor_type) = types.next().unwrap_or((0, TensorType::EMPTY));
            let graph = &mut tracing.record.lock().graph;
            let id = graph.value(tensor_type, Origin::Input(index));
            graph.inputs.push(id);
            tracing.tensor(tensor_type, id)
        });
        let results = (self.body)(&ScopeHandle::new(tracing.clone()).trains(scope.training()), arguments)?;
        let mut graph = core::mem::take(&mut tracing.record.lock().graph);
        let mut outputs = Vec::new();
        results.visit(&mut |tensor| outputs.push(tracing.id(tensor, &mut graph)));
        graph.outputs = outputs.into_iter().collect::<Result<_>>()?;
        ConcreteFunction::new(graph, scope.device())
    }

    /// How many signatures the function has been traced for.
    pub fn traces(&self) -> usize {
        self.traced.lock().len()
    }
}

/// Calls `visit` with the tensors of `arguments`.
fn tensors(arguments: &impl Arguments, visit: &mut dyn FnMut(&Tensor)) {
    arguments.visit(&mut |argument| {
        if let Argument::Tensor(tensor) = argument {
            visit(tensor);
        }
    });
}

/// Calls `visit` with all that a function is traced for.
fn keys(scope: &dyn Scope, arguments: &impl Arguments, visit: &mut dyn FnMut(Key)) {
    visit(Key::Host(scope.training().into()));
    arguments.visit(&mut |argument| match argument {
        Argument::Tensor(tensor) => visit(Key::Tensor(tensor.tensor_type())),
        Argument::Host(value) => visit(Key::Host(value)),
    });
}

/// What `body` gives in a trace that is thrown away: variables are created and the types of results are found, but nothing is
/// computed or assigned. The tensor that `body` is given is of type `input`.
pub fn dry_run<R>(scope: &dyn Scope, input: TensorType, body: impl FnOnce(&dyn Scope, &Tensor) -> Result<R>) -> Result<R> {
    let parent = scope.handle();
    let first = parent.recorder.may_create();
    let tracing = Shared::new_cyclic(|this| Tracing { this: this.clone(), parent, first, record: Lock::default() });
    let id = tracing.record.lock().graph.value(input, Origin::Input(0));
    let input = tracing.tensor(input, id);
    body(&ScopeHandle::new(tracing).trains(scope.training()), &input)
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
        self.compute(|take| inputs.iter().for_each(take), |next| core::iter::from_fn(next).collect())
    }

    /// The bytes that a run works with: scratch memory, results, constants and variables; its arguments are its caller's.
    pub fn planned_bytes(&self) -> Result<usize> {
        self.with_executable(|executable| executable.planned_bytes())
    }

    /// Runs the function on the tensors that `gather` gives, and gives its results to `build`.
    fn compute<R>(
        &self,
        gather: impl FnOnce(&mut dyn FnMut(&Tensor)),
        build: impl FnOnce(&mut dyn FnMut() -> Option<Tensor>) -> R,
    ) -> Result<R> {
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
