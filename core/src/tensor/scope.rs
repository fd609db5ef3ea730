//! Scopes: where an op goes when user code calls it.
//!
//! There is no global state. A scope computes now (`Eager`), computes and records (`Tape`), or only records (`Trace`);
//! layers, losses and optimizers are written once against [`Scope`]. A tensor knows the scope it came from, so
//! `x.matmul(&w)` needs no scope argument.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{MAX_INPUTS, MAX_OUTPUTS};
use crate::base::random::Stream;
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared, ThreadSafe};
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::Control;
use crate::tensor::variable::Variable;
use alloc::string::String;
use alloc::vec::Vec;

pub use crate::tensor::facts::{Gradient, Keeps, Op, Refusal};

/// A gradient for each input of an op; `None` where none flows.
pub type InputGradients = heapless::Vec<Option<Tensor>, MAX_INPUTS>;

/// The outputs of an op.
pub type Outputs = heapless::Vec<Tensor, MAX_OUTPUTS>;

/// What a gradient rule is given of the op that ran.
pub struct Backward<'a> {
    /// The attribute words.
    pub attributes: &'a [u32],
    /// The inputs.
    pub inputs: &'a [Tensor],
    /// The outputs.
    pub outputs: &'a [Tensor],
    /// The gradient of the target with respect to each output; `None` is zero.
    pub upstream: &'a [Option<Tensor>],
    /// Whether the gradient of each input is asked for.
    pub wanted: &'a [bool],
}

impl Backward<'_> {
    /// The gradient of output 0. A rule is called only if one of its outputs has a gradient, so an op with one output has it.
    ///
    /// Fails where only other outputs have one.
    pub fn dy(&self) -> Result<&Tensor> {
        let missing = || Error::message("output 0 has no gradient, only others have: look at each one in `upstream`");
        self.upstream.first().and_then(Option::as_ref).ok_or_else(missing)
    }

    /// `gradient()` if input `index` wants one.
    pub fn if_wanted(&self, index: usize, gradient: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
        if self.wanted.get(index).copied().unwrap_or(false) { gradient().map(Some) } else { Ok(None) }
    }
}

/// What a custom gradient's function computes, from tensors to tensors.
pub type Forward<'a> = dyn Fn(&[&Tensor]) -> Result<Vec<Tensor>> + 'a;

/// A gradient rule that a user gives for a function of tensors.
pub trait CustomRule: ThreadSafe {
    /// The gradient of each input.
    fn gradients(&self, of: &Backward<'_>) -> Result<InputGradients>;
}

impl<F: Fn(&Backward<'_>) -> Result<InputGradients> + ThreadSafe> CustomRule for F {
    fn gradients(&self, of: &Backward<'_>) -> Result<InputGradients> {
        self(of)
    }
}

/// What stands behind a scope.
pub trait Emitter: ThreadSafe {
    /// Computes or records `op`.
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs>;
    /// Runs or records a branch or a loop.
    fn control(&self, control: &Control, inputs: &[Tensor]) -> Result<Vec<Tensor>>;
    /// Whether nothing is computed here: what is emitted becomes a graph.
    fn traces(&self) -> bool {
        self.parent().is_some_and(|parent| parent.recorder.traces())
    }
    /// Where the scope of a branch or loop's body stands while it is traced in this scope: all that is done here is done there.
    fn body(&self) -> Option<&Lock<Option<ScopeHandle>>>;
    /// The value of `variable` at this moment.
    fn read(&self, variable: &Variable) -> Result<Tensor>;
    /// Sets `variable`.
    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()>;
    /// Does [`Scope::update`] in the variables' own bytes and says true, or does nothing: it is then read, emitted and assigned.
    fn update_in_place(&self, op: &'static Op, attributes: &[u32], variables: &[&Variable], inputs: &[&Tensor]) -> Result<bool> {
        let _ = (op, attributes, variables, inputs);
        Ok(false)
    }
    /// The device that new tensors are made on.
    fn device(&self) -> &Device;
    /// The scope that this one stands in.
    fn parent(&self) -> Option<&ScopeHandle>;
    /// False once the scope is over; its tensors then count as the parent's.
    fn recording(&self) -> bool;
    /// Whether variables can be created.
    fn may_create(&self) -> bool;
    /// The state of the random numbers: i64 `[seed, streams taken]`.
    fn random_state(&self) -> Result<Variable>;
    /// A stream of random numbers that was not given before.
    fn next_stream(&self) -> Result<Stream>;
    /// Computes `forward`, whose gradients are `rule`'s.
    fn custom(&self, inputs: &[&Tensor], forward: &Forward<'_>, rule: &Shared<dyn CustomRule>) -> Result<Vec<Tensor>> {
        let _ = rule;
        forward(inputs)
    }
    /// Hears that what follows is part of `name`: see [`Scope::name_scope`].
    fn enter_scope(&self, name: &str) {
        if let Some(parent) = self.parent() {
            parent.recorder.enter_scope(name);
        }
    }
    /// Hears that the part that began last is done.
    fn leave_scope(&self) {
        if let Some(parent) = self.parent() {
            parent.recorder.leave_scope();
        }
    }
    /// The name of the node that gives `tensor`, if it is recorded here, and nodes have names.
    fn name_of(&self, tensor: &Tensor) -> Option<Shared<str>> {
        let _ = tensor;
        None
    }
    /// Hears that a layer begins.
    fn enter(&self, layer: &Entered<'_>) {
        let _ = layer;
    }
    /// Hears that the layer that began last is done, with an output of this type, or none if it failed.
    fn leave(&self, output: Option<TensorType>) {
        let _ = output;
    }
}

/// A layer that begins to compute.
pub struct Entered<'a> {
    /// Its name in its model.
    pub name: &'a str,
    /// Its type, such as `Conv2D`.
    pub kind: &'a str,
    /// What tells it from other layers of that type, if anything does.
    pub id: Option<usize>,
    /// Its variables, with their paths in it.
    pub variables: &'a dyn Fn() -> Vec<(String, Variable)>,
}

/// A part of a program that has a name, for as long as this lives: see [`Scope::name_scope`].
#[must_use = "the part is over once this is dropped"]
pub struct NameScope(Shared<dyn Emitter>);

impl Drop for NameScope {
    fn drop(&mut self) {
        self.0.leave_scope();
    }
}

/// A scope, shared, and whether it trains.
#[derive(Clone)]
pub struct ScopeHandle {
    pub(crate) recorder: Shared<dyn Emitter>,
    training: bool,
}

impl ScopeHandle {
    /// The scope that `recorder` implements. It does not train.
    pub fn new(recorder: Shared<dyn Emitter>) -> ScopeHandle {
        ScopeHandle { recorder, training: false }
    }

    /// The same scope, which trains or does not.
    pub(crate) fn trains(self, training: bool) -> ScopeHandle {
        ScopeHandle { training, ..self }
    }

    /// The scope in which something is done that is to be done in this one: the body of a branch or loop, if one is being traced.
    pub(crate) fn current(self) -> ScopeHandle {
        match self.recorder.body().and_then(|body| body.lock().clone()) {
            Some(body) => body.trains(self.training).current(),
            None => self,
        }
    }

    fn is(&self, other: &ScopeHandle) -> bool {
        core::ptr::addr_eq(Shared::as_ptr(&self.recorder), Shared::as_ptr(&other.recorder))
    }

    fn depth(&self) -> usize {
        self.recorder.parent().map_or(0, |parent| parent.depth() + 1)
    }

    /// Emits `op`. Where the scope's device has no kernel for 16-bit floats, it is computed in f32, and the results rounded.
    pub(crate) fn emit_op(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        match narrow(op, self.recorder.device(), inputs) {
            Some(dtype) => widened(dtype, inputs, |inputs| self.recorder.emit(op, attributes, inputs)),
            None => self.recorder.emit(op, attributes, inputs),
        }
    }

    /// The one of two scopes that stands deeper; `self`, if neither does.
    pub(crate) fn deeper(self, other: ScopeHandle) -> ScopeHandle {
        if other.depth() > self.depth() { other } else { self }
    }

    /// True if `other` is this scope or one that it stands in.
    fn stands_in(&self, other: &ScopeHandle) -> bool {
        self.is(other) || self.recorder.parent().is_some_and(|parent| parent.stands_in(other))
    }
}

/// What layers, losses and optimizers are written against: [`Eager`](crate::trace::eager::Eager), a tape or a trace.
pub trait Scope {
    /// The scope, shared.
    fn handle(&self) -> ScopeHandle;

    /// Computes or records `op` on `inputs`. Most ops have a method of [`Tensor`] that is shorter.
    ///
    /// Fails, before any work is done, where the inputs or attributes do not fit the op.
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        self.handle().emit_op(op, attributes, inputs)
    }

    /// Whether layers behave as in training: dropout drops, batch normalisation takes the batch's own statistics.
    fn training(&self) -> bool {
        self.handle().training
    }

    /// The same scope, which trains or does not. A tape over it, and a function called in it, do as it does.
    ///
    /// ```
    /// use gradlet_core::{Differentiate, Eager, Scope, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let tape = scope.with_training(true).tape();
    /// assert!(tape.training() && !scope.training());
    /// ```
    fn with_training(&self, training: bool) -> ScopeHandle {
        self.handle().trains(training)
    }

    /// The value of `variable` at this moment: later assignments do not change it.
    ///
    /// Fails with [`Error::Unbuilt`] if the variable was not created yet.
    fn read(&self, variable: &Variable) -> Result<Tensor> {
        self.handle().recorder.read(variable)
    }

    /// Sets `variable` to `value`. Fails if the element type or the shape is another one.
    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        self.handle().recorder.assign(variable, value)
    }

    /// Adds `value` to `variable`. Fails where the element types differ, or the sum has another shape than the variable.
    fn assign_add(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        self.assign(variable, &self.read(variable)?.add(value)?)
    }

    /// Subtracts `value` from `variable`. Fails as [`Scope::assign_add`].
    fn assign_sub(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        self.assign(variable, &self.read(variable)?.sub(value)?)
    }

    /// Sets `variables` to the outputs of `op` on their values and then `inputs`: what an optimizer does. Over
    /// [`Eager`](crate::trace::eager::Eager) an op that can work in place works in the variables' own bytes.
    ///
    /// ```
    /// use gradlet_core::{Eager, Scope, Tensor, Variable, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let count = Variable::new(&scope, "count", &Tensor::scalar(&scope.device(), 1i64))?;
    /// scope.update(&ops::add::OP, &[], &[&count], &[&Tensor::scalar(&scope.device(), 2i64)])?;
    /// assert_eq!(scope.read(&count)?.item::<i64>()?, 3);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    ///
    /// Fails as [`Scope::emit`], and where the variables are not as many as the outputs, and of their types.
    fn update(&self, op: &'static Op, attributes: &[u32], variables: &[&Variable], inputs: &[&Tensor]) -> Result<()> {
        let (scope, count) = (self.handle(), variables.len() + inputs.len());
        if count > MAX_INPUTS || variables.len() != usize::from(op.def.outputs) {
            return Err(Error::Arity { got: count as u8 });
        }
        if scope.recorder.update_in_place(op, attributes, variables, inputs)? {
            return Ok(());
        }
        let values = variables.iter().map(|variable| scope.read(variable)).collect::<Result<heapless::Vec<Tensor, MAX_INPUTS>>>()?;
        let operands: heapless::Vec<&Tensor, MAX_INPUTS> = values.iter().chain(inputs.iter().copied()).collect();
        let outputs = scope.emit_op(op, attributes, &operands)?;
        variables.iter().zip(&outputs).try_for_each(|(variable, value)| scope.assign(variable, value))
    }

    /// A stream of random numbers that was not given before. It depends on the seed of the scope at the bottom, and on how
    /// many streams were taken. In a trace, it is taken while tracing, for what is computed then: initial values.
    fn next_stream(&self) -> Result<Stream> {
        self.handle().recorder.next_stream()
    }

    /// The state of the random numbers: a variable of i64 `[seed, streams taken]`, which a traced function captures like any other.
    fn random_state(&self) -> Result<Variable> {
        self.handle().recorder.random_state()
    }

    /// Names what is done until the guard is dropped, in traces and profiles: TensorFlow's `name_scope`. Layers name what they do.
    ///
    /// ```
    /// use gradlet_core::{Eager, Function, Scope, Tensor, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let f = Function::new(|scope: &dyn Scope, x: Tensor| {
    ///     let _head = scope.name_scope("head");
    ///     x.mul(&x)
    /// });
    /// let concrete = f.concrete(&scope, &Tensor::scalar(&scope.device(), 1.0f32))?;
    /// assert_eq!(concrete.traced().nodes[0].name.as_deref(), Some("head/Mul"));
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    fn name_scope(&self, name: &str) -> NameScope {
        let recorder = self.handle().recorder;
        recorder.enter_scope(name);
        NameScope(recorder)
    }

    /// The device that new tensors are made on.
    fn device(&self) -> Device {
        self.handle().recorder.device().clone()
    }
}

impl Scope for ScopeHandle {
    fn handle(&self) -> ScopeHandle {
        self.clone().current()
    }
}

/// The 16-bit float type of the inputs, if the device has no kernel of `op` for it.
pub(crate) fn narrow(op: &Op, device: &Device, inputs: &[&Tensor]) -> Option<DType> {
    let dtype = inputs.first()?.dtype();
    let narrow = matches!(dtype, DType::F16 | DType::Bf16);
    (narrow && !device.has_kernel(op.def, dtype)).then_some(dtype)
}

/// `emit` on inputs of `dtype` cast to f32, with results of f32 cast back.
pub(crate) fn widened(dtype: DType, inputs: &[&Tensor], emit: impl FnOnce(&[&Tensor]) -> Result<Outputs>) -> Result<Outputs> {
    let widen = |tensor: &&Tensor| if tensor.dtype() == dtype { tensor.cast(DType::F32) } else { Ok((*tensor).clone()) };
    let wide = inputs.iter().map(widen).collect::<Result<heapless::Vec<Tensor, MAX_INPUTS>>>()?;
    let wide: heapless::Vec<&Tensor, MAX_INPUTS> = wide.iter().collect();
    let narrow = |tensor: Tensor| if tensor.dtype() == DType::F32 { tensor.cast(dtype) } else { Ok(tensor) };
    emit(&wide)?.into_iter().map(narrow).collect()
}

/// The innermost scope that the inputs come from; `None` if all were computed outside of any.
pub(crate) fn innermost(inputs: &[&Tensor]) -> Result<Option<ScopeHandle>> {
    inputs.iter().try_fold(None, |inner, tensor| deepest(inner, tensor))
}

/// The deeper one of `inner` and the scope that `tensor` comes from.
pub(crate) fn deepest(inner: Option<ScopeHandle>, tensor: &Tensor) -> Result<Option<ScopeHandle>> {
    let Some(scope) = tensor.scope()? else { return Ok(inner) };
    match inner {
        None => Ok(Some(scope)),
        Some(inner) if inner.is(&scope) => Ok(Some(inner)),
        Some(inner) => {
            let (deep, shallow) = if inner.depth() >= scope.depth() { (inner, scope) } else { (scope, inner) };
            Some(deep).filter(|deep| deep.stands_in(&shallow)).ok_or(Error::UnrelatedScopes).map(Some)
        }
    }
}

/// A function of tensors whose gradients `rule` gives, in place of those of its ops: TensorFlow's `custom_gradient`.
///
/// `forward` is given the inputs, as they are below all tapes. `rule` is given inputs, outputs and upstream gradients as those of ops
/// are; it gives a gradient for each input, of ops on those: so it has gradients itself, where they are wanted.
///
/// ```
/// use gradlet_core::custom_op::Backward;
/// use gradlet_core::{DType, Differentiate, Eager, Tensor, ops};
/// use gradlet_core::autodiff::custom_gradient;
/// // As rounding, forward; as nothing at all, backward.
/// let straight_through = |x: &Tensor| {
///     let forward = |x: &[&Tensor]| Ok(vec![x[0].cast(DType::I32)?.cast(DType::F32)?]);
///     custom_gradient(&[x], forward, |of: &Backward<'_>| Ok([of.dy().cloned().ok()].into_iter().collect()))
/// };
/// let device = ops::portable_cpu();
/// let tape = Eager::new(&device).tape();
/// let x = tape.watch(&Tensor::scalar(&device, 3.7f32))?;
/// let y = straight_through(&x)?.remove(0);
/// assert_eq!(tape.gradient(&y, &x)?.unwrap().item::<f32>()?, 1.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub fn custom_gradient(
    inputs: &[&Tensor],
    forward: impl Fn(&[&Tensor]) -> Result<Vec<Tensor>>,
    rule: impl CustomRule + 'static,
) -> Result<Vec<Tensor>> {
    match innermost(inputs)? {
        Some(scope) => {
            let rule: Shared<dyn CustomRule> = Shared::new(rule);
            scope.recorder.custom(inputs, &forward, &rule)
        }
        None => forward(inputs),
    }
}
