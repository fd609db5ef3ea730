//! Scopes: the destinations of the ops that user code calls.
//!
//! There is no global state. A scope computes (`Eager`), computes and records (`Tape`), or only records (`Trace`). Layers, losses and
//! optimizers are written once against [`Scope`]. A tensor has a reference to its scope, so `x.matmul(&w)` needs no scope argument.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{MAX_INPUTS, MAX_OUTPUTS};
use crate::base::random::Stream;
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared, ThreadSafe};
use crate::tensor::Tensor;
use crate::tensor::device::{Device, Placement};
use crate::tensor::graph::Control;
use crate::tensor::policy::{DTypePolicy, Mode};
use crate::tensor::replicas::{Role, VariableAggregation, reduction};
use crate::tensor::variable::Variable;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;

pub use crate::tensor::facts::{Gradient, Keeps, Op, Refusal};

/// Gradient of each input of an op, or `None` for an input without gradient.
pub type InputGradients = heapless::Vec<Option<Tensor>, MAX_INPUTS>;

/// The outputs of an op.
pub type Outputs = heapless::Vec<Tensor, MAX_OUTPUTS>;

/// Input of a gradient rule: the op that ran, with its operands and upstream gradients.
pub struct Backward<'a> {
    /// The attribute words.
    pub attributes: &'a [u32],
    /// The inputs.
    pub inputs: &'a [Tensor],
    /// The outputs.
    pub outputs: &'a [Tensor],
    /// Gradient of the target with respect to each output. `None` means zero.
    pub upstream: &'a [Option<Tensor>],
    /// True for each input whose gradient is requested.
    pub wanted: &'a [bool],
}

impl Backward<'_> {
    /// Returns the gradient of output 0. A rule is called only if one of the outputs has a gradient, so this never fails for an op
    /// with one output.
    ///
    /// Fails if only other outputs have a gradient.
    pub fn dy(&self) -> Result<&Tensor> {
        let missing = || Error::message("output 0 has no gradient, only other outputs do: check each output in `upstream`");
        self.upstream.first().and_then(Option::as_ref).ok_or_else(missing)
    }

    /// Returns `gradient()` if the gradient of input `index` is requested, otherwise `None`.
    pub fn if_wanted(&self, index: usize, gradient: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
        if self.wanted.get(index).copied().unwrap_or(false) { gradient().map(Some) } else { Ok(None) }
    }
}

/// Function with a custom gradient, from tensors to tensors.
pub type Forward<'a> = dyn Fn(&[&Tensor]) -> Result<Vec<Tensor>> + 'a;

/// Gradient rule that a user defines for a function of tensors.
pub trait CustomRule: ThreadSafe {
    /// Returns the gradient of each input.
    fn gradients(&self, of: &Backward<'_>) -> Result<InputGradients>;
}

impl<F: Fn(&Backward<'_>) -> Result<InputGradients> + ThreadSafe> CustomRule for F {
    fn gradients(&self, of: &Backward<'_>) -> Result<InputGradients> {
        self(of)
    }
}

/// Implementation of a scope.
pub trait Emitter: ThreadSafe {
    /// Computes or records `op`.
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs>;
    /// Runs or records a branch or a loop.
    fn control(&self, control: &Control, inputs: &[Tensor]) -> Result<Vec<Tensor>>;
    /// True if the scope computes nothing and records a graph.
    fn traces(&self) -> bool {
        self.parent().is_some_and(|parent| parent.recorder.traces())
    }
    /// Returns the slot that holds the scope of the branch or loop body that is being traced. While the slot is filled, every op of this
    /// scope is emitted into that body. Returns `None` for a scope that never traces a body.
    fn body(&self) -> Option<&Lock<Option<ScopeHandle>>>;
    /// Returns the current value of `variable`.
    fn read(&self, variable: &Variable) -> Result<Tensor>;
    /// Sets `variable`.
    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()>;
    /// Does [`Scope::update`] in the variables' own bytes and returns true, or does nothing and returns false. After false, the
    /// caller reads the variables, emits the op, and assigns its outputs.
    fn update_in_place(&self, op: &'static Op, attributes: &[u32], variables: &[&Variable], inputs: &[&Tensor]) -> Result<bool> {
        let _ = (op, attributes, variables, inputs);
        Ok(false)
    }
    /// Returns the device on which new tensors are created.
    fn device(&self) -> &Device;
    /// Returns the enclosing scope, or `None` for the outermost scope.
    fn parent(&self) -> Option<&ScopeHandle>;
    /// True until the scope ends. After that, its tensors belong to the parent.
    fn recording(&self) -> bool;
    /// True if variables can be created in this scope.
    fn may_create(&self) -> bool;
    /// Returns the state of the random numbers: an i64 variable `[seed, streams taken]`.
    fn random_state(&self) -> Result<Variable>;
    /// Returns a new stream of random numbers.
    fn next_stream(&self) -> Result<Stream>;
    /// Returns `forward(inputs)`, with `rule` as its gradient. A scope that records no gradients ignores `rule`.
    fn custom(&self, inputs: &[&Tensor], forward: &Forward<'_>, rule: &Shared<dyn CustomRule>) -> Result<Vec<Tensor>> {
        let _ = rule;
        forward(inputs)
    }
    /// Returns the scope's role among replicas, or `None` if there are none.
    fn role(&self) -> Option<&Role> {
        self.parent().and_then(|parent| parent.recorder.role())
    }
    /// Begins a name scope: see [`Scope::name_scope`].
    fn enter_scope(&self, name: &str) {
        if let Some(parent) = self.parent() {
            parent.recorder.enter_scope(name);
        }
    }
    /// Ends the innermost name scope.
    fn leave_scope(&self) {
        if let Some(parent) = self.parent() {
            parent.recorder.leave_scope();
        }
    }
    /// Returns the name of the node that computes `tensor`. Returns `None` if this scope does not record the tensor or does not name its
    /// nodes.
    fn name_of(&self, tensor: &Tensor) -> Option<Shared<str>> {
        let _ = tensor;
        None
    }
    /// Returns the op that computes `tensor`, with its attributes and inputs, if this scope records the op.
    fn producer(&self, tensor: &Tensor) -> Option<(&'static Op, Vec<u32>, Vec<Tensor>)> {
        let _ = tensor;
        None
    }
    /// Reports that a layer begins.
    fn enter(&self, layer: &Entered<'_>) {
        let _ = layer;
    }
    /// Reports that the innermost layer ends, with the type of its output, or `None` if it failed.
    fn leave(&self, output: Option<TensorType>) {
        let _ = output;
    }
}

/// Layer that begins to compute.
pub struct Entered<'a> {
    /// Name in the model.
    pub name: &'a str,
    /// Type of the layer, such as `Conv2D`.
    pub kind: &'a str,
    /// Identifier among the layers of this type, if there is one.
    pub id: Option<usize>,
    /// Function that returns the layer's variables with their paths inside the layer.
    pub variables: &'a dyn Fn() -> Vec<(String, Variable)>,
}

/// Guard of a name scope, which ends on drop: see [`Scope::name_scope`].
#[must_use = "the name scope ends when this is dropped"]
pub struct NameScope(Shared<dyn Emitter>);

impl Drop for NameScope {
    fn drop(&mut self) {
        self.0.leave_scope();
    }
}

/// Guard of a device on which ops run, which ends on drop: see [`Scope::with_device`].
#[must_use = "ops run on the device until this is dropped"]
pub struct DeviceScope {
    placement: Option<Shared<dyn Placement>>,
    entered: u64,
    /// The device is that of a thread, so the guard must end on the same thread.
    thread: PhantomData<*const ()>,
}

impl DeviceScope {
    fn enter(placement: Option<&Shared<dyn Placement>>, device: Option<u32>) -> DeviceScope {
        let entered = placement.map_or(0, |placement| placement.enter(device));
        DeviceScope { placement: placement.cloned(), entered, thread: PhantomData }
    }

    /// Names `device`, a member of a group.
    pub(crate) fn on(device: &Device) -> DeviceScope {
        DeviceScope::enter(device.placement(), Some(device.index()))
    }

    /// Names the device with this index in the group of `device`, if it has one and an index is given.
    pub(crate) fn at(device: &Device, index: Option<u32>) -> Option<DeviceScope> {
        let placement = device.placement().filter(|_| index.is_some())?;
        Some(DeviceScope::enter(Some(placement), index))
    }
}

impl Drop for DeviceScope {
    fn drop(&mut self) {
        if let Some(placement) = &self.placement {
            placement.leave(self.entered);
        }
    }
}

/// Shared reference to a scope, with its mode: training or inference, and the dtype policy of layers.
#[derive(Clone)]
pub struct ScopeHandle {
    pub(crate) recorder: Shared<dyn Emitter>,
    mode: Mode,
}

impl ScopeHandle {
    /// Creates a handle of the scope that `recorder` implements, with training mode off and the policy `float32`.
    pub fn new(recorder: Shared<dyn Emitter>) -> ScopeHandle {
        ScopeHandle { recorder, mode: Mode::default() }
    }

    /// Returns the scope's role among replicas, or `None` if there are none.
    pub fn role(&self) -> Option<Role> {
        self.recorder.role().cloned()
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns a handle of the same scope in this mode.
    pub(crate) fn in_mode(self, mode: Mode) -> ScopeHandle {
        ScopeHandle { mode, ..self }
    }

    /// Returns the scope that receives ops emitted to this one: the scope of the branch or loop body that is being traced, or this scope
    /// if there is none.
    pub(crate) fn current(self) -> ScopeHandle {
        match self.recorder.body().and_then(|body| body.lock().clone()) {
            Some(body) => body.in_mode(self.mode).current(),
            None => self,
        }
    }

    /// Returns the outermost scope around this one, in the same mode.
    pub(crate) fn outermost(&self) -> ScopeHandle {
        let outermost = core::iter::successors(Some(self), |scope| scope.recorder.parent()).last().unwrap_or(self);
        outermost.clone().in_mode(self.mode)
    }

    /// Returns the scope in which to build a layer that is called in this scope. This is the outermost scope, so that the tensors of
    /// `build` have values and can be kept. If this scope may not create variables, returns this scope, which then rejects their creation.
    pub(crate) fn building(self) -> ScopeHandle {
        if self.recorder.may_create() { self.outermost() } else { self }
    }

    fn is(&self, other: &ScopeHandle) -> bool {
        core::ptr::addr_eq(Shared::as_ptr(&self.recorder), Shared::as_ptr(&other.recorder))
    }

    fn depth(&self) -> usize {
        self.recorder.parent().map_or(0, |parent| parent.depth() + 1)
    }

    /// Emits `op`. If the scope's device has no kernel for 16-bit floats, computes the op in f32 and rounds the results.
    pub(crate) fn emit_op(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        match narrow(op, self.recorder.device(), inputs) {
            Some(dtype) => widened(dtype, inputs, |inputs| self.recorder.emit(op, attributes, inputs)),
            None => self.recorder.emit(op, attributes, inputs),
        }
    }

    /// Returns `value`, combined with the values that the other replicas assign to `variable`, if there are any.
    fn aggregated(&self, variable: &Variable, value: &Tensor) -> Result<Tensor> {
        if !variable.is_mirrored() || variable.is_synchronized_on_read() {
            return Ok(value.clone());
        }
        match variable.aggregation() {
            VariableAggregation::None => Ok(value.clone()),
            VariableAggregation::Sum => self.over_replicas(reduction::SUM, value),
            VariableAggregation::Mean => self.over_replicas(reduction::MEAN, value),
            VariableAggregation::OnlyFirstReplica => self.over_replicas(reduction::FIRST, value),
        }
    }

    /// Returns `value`, combined with those of the other replicas by a [`reduction`]. Outside of a replica, returns `value`.
    pub(crate) fn over_replicas(&self, word: u32, value: &Tensor) -> Result<Tensor> {
        let Some(role) = self.recorder.role().filter(|role| role.rank.is_some()) else { return Ok(value.clone()) };
        self.emit_op(role.replicas.reduction(), &[word], &[value])?.pop().ok_or(Error::Internal)
    }

    /// Returns the more deeply nested of two scopes, or `self` if both are equally deep.
    pub(crate) fn deeper(self, other: ScopeHandle) -> ScopeHandle {
        if other.depth() > self.depth() { other } else { self }
    }

    /// True if `other` is this scope or encloses it.
    fn stands_in(&self, other: &ScopeHandle) -> bool {
        self.is(other) || self.recorder.parent().is_some_and(|parent| parent.stands_in(other))
    }
}

/// Interface against which layers, losses and optimizers are written: [`Eager`](crate::trace::eager::Eager), a tape or a trace.
pub trait Scope {
    /// Returns a shared reference to the scope.
    fn handle(&self) -> ScopeHandle;

    /// Computes or records `op` on `inputs`. Most ops have a shorter method of [`Tensor`].
    ///
    /// Fails before any computation if the inputs or attributes do not fit the op.
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        self.handle().emit_op(op, attributes, inputs)
    }

    /// True in training mode: dropout drops elements, and batch normalization uses the statistics of the batch.
    fn training(&self) -> bool {
        self.handle().mode.training
    }

    /// Returns the same scope with this training mode. A tape over it and a function called in it inherit the mode.
    ///
    /// ```
    /// use gradlet_core::{Differentiate, Eager, Scope, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let tape = scope.with_training(true).tape();
    /// assert!(tape.training() && !scope.training());
    /// ```
    fn with_training(&self, training: bool) -> ScopeHandle {
        let scope = self.handle();
        let mode = Mode { training, ..scope.mode };
        scope.in_mode(mode)
    }

    /// Returns the policy of the layers that are called in this scope and have none of their own. In a layer, returns the policy of that
    /// layer. The default is [`DTypePolicy::Float32`].
    fn dtype_policy(&self) -> DTypePolicy {
        self.handle().mode.policy
    }

    /// Returns the same scope with this policy for the layers that have none of their own: Keras's `set_dtype_policy`, for one scope
    /// instead of the process. A tape over it and a function called in it inherit the policy.
    ///
    /// ```
    /// use gradlet_core::layers::{Dense, Layer};
    /// use gradlet_core::{DType, DTypePolicy, Eager, Scope, Tensor, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let x = Tensor::full(&scope.device(), 1.0f32, &[2, 3])?;
    /// let y = Dense::new(4).apply(&scope.with_dtype_policy(DTypePolicy::MixedBfloat16), &x)?;
    /// assert_eq!(y.dtype(), DType::Bf16);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    #[doc(alias("keras.config.set_dtype_policy", "keras.mixed_precision.set_global_policy"))]
    fn with_dtype_policy(&self, policy: DTypePolicy) -> ScopeHandle {
        let scope = self.handle();
        let mode = Mode { policy, ..scope.mode };
        scope.in_mode(mode)
    }

    /// Returns the current value of `variable`. Later assignments do not change it. In a layer with a policy of mixed precision, a float is
    /// cast to the compute dtype.
    ///
    /// Fails with [`Error::Unbuilt`] if the variable was not created yet.
    fn read(&self, variable: &Variable) -> Result<Tensor> {
        let scope = self.handle();
        let value = scope.recorder.read(variable)?;
        scope.computed(value)
    }

    /// Sets `variable` to `value`. In a replica, sets its copy to the values of all replicas, combined as
    /// [`Variable::aggregated`] says. Fails if the element type or the shape differs. In a layer with a policy of mixed precision, a float
    /// is cast to the element type of the variable.
    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        let scope = self.handle();
        scope.recorder.assign(variable, &scope.aggregated(variable, &scope.stored(variable, value)?)?)
    }

    /// Adds `value` to `variable`. Casts it like [`Scope::assign`]. Fails if the element types differ, or if the sum does not have the
    /// variable's shape.
    fn assign_add(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        let scope = self.handle();
        variable.increase(&scope, &scope.aggregated(variable, &scope.stored(variable, value)?)?)
    }

    /// Subtracts `value` from `variable`. Casts and fails like [`Scope::assign_add`].
    fn assign_sub(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        let scope = self.handle();
        variable.decrease(&scope, &scope.aggregated(variable, &scope.stored(variable, value)?)?)
    }

    /// Sets `variables` to the outputs of `op`, like an optimizer's step. The inputs of the op are the variables' values, followed by
    /// `inputs`. In [`Eager`](crate::trace::eager::Eager), an op that can work in place works in the variables' own bytes.
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
    /// Fails like [`Scope::emit`], and if the variables differ from the outputs in number or type.
    fn update(&self, op: &'static Op, attributes: &[u32], variables: &[&Variable], inputs: &[&Tensor]) -> Result<()> {
        let (scope, count) = (self.handle(), variables.len() + inputs.len());
        if count > MAX_INPUTS || variables.len() != usize::from(op.def.outputs) {
            return Err(Error::Arity { got: count as u8 });
        }
        if scope.recorder.update_in_place(op, attributes, variables, inputs)? {
            return Ok(());
        }
        let values =
            variables.iter().map(|variable| scope.recorder.read(variable)).collect::<Result<heapless::Vec<Tensor, MAX_INPUTS>>>()?;
        let operands: heapless::Vec<&Tensor, MAX_INPUTS> = values.iter().chain(inputs.iter().copied()).collect();
        let outputs = scope.emit_op(op, attributes, &operands)?;
        variables.iter().zip(&outputs).try_for_each(|(variable, value)| scope.recorder.assign(variable, value))
    }

    /// Returns a new stream of random numbers. It depends on the seed of the outermost scope and on the number of streams taken
    /// before. In a trace, the stream is taken during tracing, for values computed then, such as initial values.
    fn next_stream(&self) -> Result<Stream> {
        self.handle().recorder.next_stream()
    }

    /// Returns the state of the random numbers: an i64 variable `[seed, streams taken]`. A traced function captures it like any other
    /// variable.
    fn random_state(&self) -> Result<Variable> {
        self.handle().recorder.random_state()
    }

    /// Names the ops emitted until the guard is dropped, in traces and profiles, like TensorFlow's `name_scope`. Layers name their
    /// ops this way.
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

    /// Runs ops on the device with this name, such as `GPU:0`, until the guard is dropped: TensorFlow's `tf.device`. It also names the
    /// device on which [`Scope::device`] creates tensors and variables, and on which functions run. It holds for this thread and all
    /// scopes of the same group of devices. The innermost guard counts. In a traced function, the named device computes the nodes that are
    /// traced meanwhile.
    ///
    /// Fails if the scope's device belongs to no group, if the name is not that of a device, and, unless placement is soft, if there is no
    /// such device. With soft placement, the fastest device computes the ops then. `gradlet::config` has an example.
    #[doc(alias = "tf.device")]
    fn with_device(&self, name: &str) -> Result<DeviceScope> {
        let device = self.handle().recorder.device().clone();
        let alone = || {
            let text = "is used on its own: create the scope with gradlet::config::Context";
            Error::message(alloc::format!("ops cannot run on {name:?}, because {} {text}", device.name()))
        };
        let placement = device.placement().ok_or_else(alone)?;
        Ok(DeviceScope::enter(Some(placement), placement.find(name)?))
    }

    /// Ends the effect of [`Scope::with_device`] until the guard is dropped, like `tf.device(None)`.
    fn without_device(&self) -> DeviceScope {
        DeviceScope::enter(self.handle().recorder.device().placement(), None)
    }

    /// Returns the device on which new tensors are created.
    fn device(&self) -> Device {
        self.handle().recorder.device().current()
    }
}

impl Scope for ScopeHandle {
    fn handle(&self) -> ScopeHandle {
        self.clone().current()
    }
}

/// Returns the type of input 0 if it is a 16-bit float for which the device has no kernel of `op`. Otherwise returns `None`.
pub(crate) fn narrow(op: &Op, device: &Device, inputs: &[&Tensor]) -> Option<DType> {
    let dtype = inputs.first()?.dtype();
    let narrow = matches!(dtype, DType::F16 | DType::Bf16);
    (narrow && !device.has_kernel(op.def, dtype)).then_some(dtype)
}

/// Casts the inputs of type `dtype` to f32, calls `emit` with all inputs, and casts its f32 results back to `dtype`.
pub(crate) fn widened(dtype: DType, inputs: &[&Tensor], emit: impl FnOnce(&[&Tensor]) -> Result<Outputs>) -> Result<Outputs> {
    let widen = |tensor: &&Tensor| if tensor.dtype() == dtype { tensor.cast(DType::F32) } else { Ok((*tensor).clone()) };
    let wide = inputs.iter().map(widen).collect::<Result<heapless::Vec<Tensor, MAX_INPUTS>>>()?;
    let wide: heapless::Vec<&Tensor, MAX_INPUTS> = wide.iter().collect();
    let narrow = |tensor: Tensor| if tensor.dtype() == DType::F32 { tensor.cast(dtype) } else { Ok(tensor) };
    emit(&wide)?.into_iter().map(narrow).collect()
}

/// Returns the innermost scope of the inputs, or `None` if none of them belongs to a scope.
pub(crate) fn innermost(inputs: &[&Tensor]) -> Result<Option<ScopeHandle>> {
    inputs.iter().try_fold(None, |inner, tensor| deepest(inner, tensor))
}

/// Returns the deeper of `inner` and the scope of `tensor`. `None` means no scope. Fails if neither scope encloses the other.
pub(crate) fn deepest(inner: Option<ScopeHandle>, tensor: &Tensor) -> Result<Option<ScopeHandle>> {
    let Some(scope) = tensor.scope()? else { return Ok(inner) };
    match inner {
        None => Ok(Some(scope)),
        Some(inner) if inner.is(&scope) => Ok(Some(inner)),
        Some(inner) => {
            let (deep, shallow) = if inner.depth() >= scope.depth() { (inner, scope) } else { (scope, inner) };
            Some(deep).filter(|deep| deep.stands_in(&shallow)).ok_or_else(|| tensor.misused(Error::UnrelatedScopes)).map(Some)
        }
    }
}

/// Computes a function of tensors whose gradient is `rule`, not the gradients of its ops, like TensorFlow's `custom_gradient`.
///
/// `forward` receives the inputs without their tapes, so no tape records its ops. `rule` receives inputs, outputs and upstream
/// gradients like the gradient rule of an op. It returns a gradient for each input, computed by ops, so it is itself differentiable.
///
/// ```
/// use gradlet_core::custom_op::Backward;
/// use gradlet_core::{DType, Differentiate, Eager, Tensor, ops};
/// use gradlet_core::autodiff::custom_gradient;
/// // Rounds in the forward pass. Passes the gradient on unchanged in the backward pass.
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
#[doc(alias = "tf.custom_gradient")]
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
