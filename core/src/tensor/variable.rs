//! Variables: the values that training changes. Only a [`Scope`] reads and assigns them.

use crate::base::error::{Error, Result};
use crate::base::op::MAX_OUTPUTS;
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared, ThreadSafe};
use crate::tensor::Tensor;
use crate::tensor::device::account::Holder;
use crate::tensor::device::{Buffer, Device};
use crate::tensor::replicas::{Role, VariableAggregation, VariableSynchronization};
use crate::tensor::scope::Scope;
use crate::tensor::waiting::Monitor;
use crate::tensor::writing::Writing;
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

/// Named value that can be assigned. Clones share the value.
///
/// A layer declares its variables with [`Variable::deferred`] and creates them in `build`, when it has the input shape.
///
/// ```
/// use gradlet_core::{Eager, Scope, Tensor, Variable, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let w = Variable::new(&scope, "w", &Tensor::scalar(&scope.device(), 2.0f32))?;
/// let before = scope.read(&w)?;
/// scope.assign(&w, &before.add(&before)?)?;
/// assert_eq!(scope.read(&w)?.item::<f32>()?, 4.0);
/// assert_eq!(before.item::<f32>()?, 2.0);
/// scope.assign_sub(&w, &Tensor::scalar(&scope.device(), 1.0f32))?;
/// assert_eq!(scope.read(&w)?.item::<f32>()?, 3.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "tf.Variable")]
pub struct Variable {
    cell: Shared<Cell>,
    /// True if a function's body received this handle as an argument.
    argument: bool,
    /// True for the handle of a replica's copy. The copy of the first replica is the variable itself.
    local: bool,
}

struct Cell {
    name: Shared<str>,
    /// True if the variable was declared for optimizers to train.
    trained: bool,
    frozen: AtomicBool,
    sharing: Lock<Sharing>,
    /// True if there are copies. It is faster to read than the list.
    mirrored: AtomicBool,
    /// The copies of the replicas after the first one.
    copies: Lock<Vec<Variable>>,
    state: Monitor<Option<State>>,
    /// Lock that one thread holds while it creates the variable.
    creation: Monitor<Option<()>>,
    /// Source of the first value, if it is not the value passed to `create`.
    first: Lock<Option<Shared<dyn FirstValue>>>,
}

/// How the copies of a variable are combined.
#[derive(Clone, Copy, Default)]
struct Sharing {
    synchronization: VariableSynchronization,
    aggregation: VariableAggregation,
}

/// Source of a variable's first value that replaces the value passed to `create`, such as a checkpoint.
pub trait FirstValue: ThreadSafe {
    /// Returns the first value for a variable that would otherwise begin with `initial`. The returned tensor must have the same type and
    /// device.
    fn value(&self, initial: &Tensor) -> Result<Tensor>;
}

struct State {
    tensor_type: TensorType,
    device: Device,
    /// The value's bytes, or `None` while a function or an op computes in them.
    buffer: Option<Shared<Buffer>>,
}

impl State {
    fn new(value: &Tensor, holder: impl FnOnce() -> Holder) -> Result<State> {
        let buffer = Buffer::lasting(value.buffer()?, holder)?;
        Ok(State { tensor_type: value.tensor_type(), device: buffer.device().clone(), buffer: Some(buffer) })
    }
}

impl Variable {
    /// Creates a trainable variable with this first value, which must be computed, not traced.
    ///
    /// Fails with [`Error::LateVariable`] in any trace of a function but the first.
    pub fn new(scope: &dyn Scope, name: &str, value: &Tensor) -> Result<Variable> {
        let variable = Variable::deferred(name);
        variable.create(scope, value)?;
        Ok(variable)
    }

    fn of(name: &str, trained: bool) -> Variable {
        let cell = Cell {
            name: name.into(),
            trained,
            frozen: AtomicBool::new(false),
            sharing: Lock::default(),
            mirrored: AtomicBool::new(false),
            copies: Lock::default(),
            state: Monitor::new(None),
            creation: Monitor::new(Some(())),
            first: Lock::new(None),
        };
        Variable { cell: Shared::new(cell), argument: false, local: false }
    }

    /// Returns a trainable variable without a value. [`Variable::create`] sets its first value.
    pub fn deferred(name: &str) -> Variable {
        Variable::of(name, true)
    }

    /// Returns a deferred variable that no optimizer trains: see [`Variable::deferred`].
    pub fn untrained(name: &str) -> Variable {
        Variable::of(name, false)
    }

    /// Sets the first value of a deferred variable. If the variable has a value, this does nothing. A source set with
    /// [`Variable::first_value_from`] takes precedence over `value`.
    ///
    /// Fails with [`Error::LateVariable`] in any trace of a function but the first.
    pub fn create(&self, scope: &dyn Scope, value: &Tensor) -> Result<()> {
        if !self.is_built() && !scope.handle().recorder.may_create() {
            return Err(Error::LateVariable.context(format!("variable {:?}", self.name())));
        }
        let scope = scope.handle();
        let role = scope.recorder.role();
        self.create_as(role, || Ok(value.clone()))
    }

    /// Makes `first` the source of the first value, for a checkpoint that was restored before the variable is created. If the
    /// variable has a value, this does nothing.
    pub fn first_value_from(&self, first: Shared<dyn FirstValue>) {
        if !self.is_built() {
            *self.cell.first.lock() = Some(first);
        }
    }

    /// Returns the first value: that of the source if there is one, otherwise `initial`.
    fn first_value(&self, initial: &Tensor) -> Result<Tensor> {
        let Some(first) = self.cell.first.lock().clone() else { return Ok(initial.clone()) };
        let value = first.value(initial)?;
        if value.tensor_type() != initial.tensor_type() {
            return Err(self.refuse(initial.tensor_type(), value.tensor_type()));
        }
        *self.cell.first.lock() = None;
        Ok(value)
    }

    /// Sets the first value of a deferred variable to the result of `value`, in any scope, even one that may not create variables. If
    /// the variable has a value, this does nothing.
    pub(crate) fn create_with(&self, value: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        self.create_as(None, value)
    }

    /// Creates the variable like [`Variable::create_with`], with a copy for each replica of `role`.
    fn create_as(&self, role: Option<&Role>, value: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        if self.is_built() {
            return Ok(());
        }
        let value = value()?;
        // A source may take long to return the first value.
        let turn = self.cell.creation.turn(&value.device()?);
        if !self.is_built() {
            let restored = self.cell.first.lock().is_some();
            let mut value = self.first_value(&value)?;
            if let Some(role) = role {
                value = self.mirror(role.replicas.devices(), &value, restored)?;
            }
            let state = State::new(&value, || self.holder())?;
            state.buffer.iter().for_each(|buffer| buffer.hold(|| self.holder()));
            self.cell.state.change(|place| *place = Some(state));
        }
        drop(turn);
        Ok(())
    }

    /// Creates a copy for each of `devices` after the first one. Returns the value on the first one. A restored sum is that of all copies,
    /// so the others begin at 0.
    fn mirror(&self, devices: &[Device], value: &Tensor, restored: bool) -> Result<Tensor> {
        let Some((first, others)) = devices.split_first() else { return Ok(value.clone()) };
        let whole = restored && self.is_synchronized_on_read() && self.aggregation() == VariableAggregation::Sum;
        let mut copies = Vec::new();
        for (device, rank) in others.iter().zip(1..) {
            let copy = Variable::of(&format!("{}/replica_{rank}", self.name()), self.cell.trained);
            copy.create_with(|| if whole { Tensor::zeros(device, value.tensor_type()) } else { value.brought(device) })?;
            copy.set_trainable(!self.is_frozen());
            copies.push(Variable { local: true, ..copy });
        }
        *self.cell.copies.lock() = copies;
        self.cell.mirrored.store(true, Ordering::Release);
        value.brought(first)
    }

    /// Sets how the values that replicas assign to the variable are combined. The default is [`VariableAggregation::None`].
    pub fn aggregated(self, aggregation: VariableAggregation) -> Variable {
        self.cell.sharing.lock().aggregation = aggregation;
        self
    }

    /// Sets when the copies of the replicas are combined. The default is [`VariableSynchronization::Auto`].
    pub fn synchronized(self, synchronization: VariableSynchronization) -> Variable {
        self.cell.sharing.lock().synchronization = synchronization;
        self
    }

    pub(crate) fn aggregation(&self) -> VariableAggregation {
        self.cell.sharing.lock().aggregation
    }

    pub(crate) fn is_synchronized_on_read(&self) -> bool {
        self.cell.sharing.lock().synchronization == VariableSynchronization::OnRead
    }

    /// True if replicas have copies of the variable, and this is not one of them.
    pub(crate) fn is_mirrored(&self) -> bool {
        !self.local && self.cell.mirrored.load(Ordering::Acquire)
    }

    /// True if this is the copy of a replica.
    pub(crate) fn is_copy(&self) -> bool {
        self.local
    }

    /// Returns the copy of each replica: TensorFlow's `DistributedVariable.values`. Empty if the variable was not created in the scope of
    /// a strategy.
    pub fn copies(&self) -> Vec<Variable> {
        if !self.is_mirrored() {
            return Vec::new();
        }
        let first = Variable { local: true, ..self.clone() };
        core::iter::once(first).chain(self.cell.copies.lock().iter().cloned()).collect()
    }

    /// Returns the copy of replica `rank`, or the variable itself if it has no copies.
    pub(crate) fn copy_of(&self, rank: usize) -> Variable {
        match rank {
            _ if !self.is_mirrored() => self.clone(),
            0 => Variable { local: true, ..self.clone() },
            rank => {
                let copy = self.cell.copies.lock().get(rank - 1).cloned();
                copy.map_or_else(|| self.clone(), |copy| copy.as_argument(self.argument))
            }
        }
    }

    /// Returns the name, without the name of the layer.
    pub fn name(&self) -> &str {
        &self.cell.name
    }

    pub(crate) fn holder(&self) -> Holder {
        Holder::Variable(self.cell.name.clone())
    }

    /// Returns the device that holds the value. Fails with [`Error::Unbuilt`] if the variable has no value.
    pub fn device(&self) -> Result<Device> {
        self.cell.state.look(|state| state.as_ref().map(|state| state.device.clone())).ok_or(Error::Unbuilt)
    }

    /// True if optimizers train the variable: it was not declared with [`Variable::untrained`], and it is not frozen.
    pub fn trainable(&self) -> bool {
        self.cell.trained && !self.is_frozen()
    }

    /// Freezes the variable if `trainable` is false, and unfreezes it if `trainable` is true. Optimizers leave a frozen variable
    /// unchanged, and tapes do not watch it. A variable declared with [`Variable::untrained`] never becomes trainable. A
    /// [`Function`](crate::Function) that uses the variable is traced again.
    /// [`Module::set_trainable`](crate::layers::Module::set_trainable) freezes whole layers and models.
    ///
    /// ```
    /// use gradlet_core::Variable;
    /// let w = Variable::deferred("w");
    /// w.set_trainable(false);
    /// assert!(!w.trainable() && !w.clone().trainable());
    /// ```
    pub fn set_trainable(&self, trainable: bool) {
        self.cell.frozen.store(!trainable, Ordering::Relaxed);
        self.cell.copies.lock().iter().for_each(|copy| copy.set_trainable(trainable));
    }

    /// True if [`Variable::set_trainable`] froze the variable.
    pub(crate) fn is_frozen(&self) -> bool {
        self.cell.frozen.load(Ordering::Relaxed)
    }

    /// True if the variable has a value.
    pub fn is_built(&self) -> bool {
        self.cell.state.look(Option::is_some)
    }

    /// Returns the element type and shape. Fails with [`Error::Unbuilt`] if the variable has no value.
    pub fn tensor_type(&self) -> Result<TensorType> {
        self.cell.state.look(|state| state.as_ref().map(|state| state.tensor_type)).ok_or(Error::Unbuilt)
    }

    /// Calls `use_buffer` until it returns `Some`, and returns the value in it. `use_buffer` receives `None` while a function or an op
    /// computes in the buffer. The thread waits between the calls. Fails with [`Error::Unbuilt`] if the variable has no value.
    fn wait<R>(&self, use_buffer: impl Fn(&mut Option<Shared<Buffer>>) -> Option<R>) -> Result<R> {
        self.cell.state.when(|state| match state {
            Some(state) => use_buffer(&mut state.buffer).map(Ok).ok_or_else(|| state.device.clone()),
            None => Ok(Err(Error::Unbuilt)),
        })
    }

    /// Returns the value's bytes. Waits while a function or an op computes in them.
    pub(crate) fn buffer(&self) -> Result<Shared<Buffer>> {
        self.wait(|buffer| buffer.clone())
    }

    /// Returns the value as a computed tensor. Waits like [`Variable::buffer`].
    pub(crate) fn value(&self) -> Result<Tensor> {
        Ok(Tensor::shared(self.tensor_type()?, self.buffer()?))
    }

    /// Fails unless a value of this type can be assigned.
    pub(crate) fn accepts(&self, value: TensorType) -> Result<()> {
        let own = self.tensor_type()?;
        if own == value { Ok(()) } else { Err(self.refuse(own, value)) }
    }

    fn refuse(&self, own: TensorType, value: TensorType) -> Error {
        Error::message(format!("variable {:?} is {own}, so it cannot be set to {value}", self.cell.name))
    }

    /// Lets `write` change the value's bytes in place, outside of every scope, for example to read a value from a file without a
    /// second copy in memory. The bytes are the elements in row-major order and in the host's byte order. In a bool variable, each
    /// byte is 0 or 1. If `write` sets a byte to another value, it becomes 1. Other threads that read or assign the variable wait
    /// until `write` returns.
    ///
    /// Fails with [`Error::Unbuilt`] if the variable has no value.
    ///
    /// ```
    /// use gradlet_core::{Eager, Scope, Tensor, Variable, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let w = Variable::new(&scope, "w", &Tensor::new(&scope.device(), &[1u8, 2], &[2])?)?;
    /// w.write(|bytes| bytes.copy_from_slice(&[7, 8]))?;
    /// assert_eq!(scope.read(&w)?.to_vec::<u8>()?, [7, 8]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn write<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let mut writing = Writing::new([self])?;
        let mut value = writing.values().next().ok_or(Error::Internal)?;
        value.update(write)
    }

    /// Sets the variable to a computed tensor on its device.
    pub(crate) fn set(&self, value: &Tensor) -> Result<()> {
        self.accepts(value.tensor_type())?;
        let own = self.device()?;
        let near = *value.buffer()?.device() == own;
        if !near && own.placement().is_none() && value.device()?.placement().is_none() {
            let (name, other) = (&self.cell.name, value.buffer()?.device().name());
            return Err(Error::message(format!(
                "variable {name:?} is on {}, but its new value is on {other}: copy it with `to`",
                own.name()
            )));
        }
        let value = value.brought(&own)?;
        let value = Buffer::lasting(value.buffer()?, || self.holder())?;
        value.hold(|| self.holder());
        let old = self.wait(|buffer| buffer.as_mut().map(|own| core::mem::replace(own, value.clone())))?;
        drop(old);
        Ok(())
    }

    /// Takes the value's bytes for computing in place. They are copied if another owner holds them. Other threads wait until
    /// [`Variable::put`]. To avoid deadlock, a caller takes or reads several variables in the order of their `id`.
    ///
    /// Fails with [`Error::OutOfMemory`] if there is no memory for the copy. The variable is unchanged then.
    pub(crate) fn take(&self) -> Result<Shared<Buffer>> {
        let mut buffer = self.wait(Option::take)?;
        if Shared::get_mut(&mut buffer).is_none() {
            match buffer.copy(self.holder()) {
                Ok(copy) => {
                    buffer.hold(|| Holder::Tensor(""));
                    buffer = Shared::new(copy);
                }
                Err(error) => {
                    self.put(buffer);
                    return Err(error);
                }
            }
        }
        Ok(buffer)
    }

    /// Takes the value's bytes, which another owner may share. Other threads wait until [`Variable::put`].
    pub(crate) fn take_shared(&self) -> Result<Shared<Buffer>> {
        self.wait(Option::take)
    }

    /// Puts back the bytes that were taken, or others in their place.
    pub(crate) fn put(&self, buffer: Shared<Buffer>) {
        self.cell.state.change(|state| {
            if let Some(state) = state {
                state.buffer = Some(buffer);
            }
        });
    }

    /// Returns a handle of the same variable. It is marked as a function's argument if `argument` is true, otherwise as a capture of the
    /// function's body.
    pub(crate) fn as_argument(&self, argument: bool) -> Variable {
        Variable { argument, ..self.clone() }
    }

    /// True if this handle is an argument of a function.
    pub(crate) fn is_argument(&self) -> bool {
        self.argument
    }

    /// Returns a number that identifies this variable among all live variables.
    pub fn id(&self) -> usize {
        Shared::as_ptr(&self.cell) as usize
    }
}

/// Bytes of variables, taken for computing in place and put back on drop. There are at most as many as an op has outputs.
pub(crate) struct Taken<'v> {
    variables: &'v [&'v Variable],
    buffers: [Option<Shared<Buffer>>; MAX_OUTPUTS],
}

impl<'v> Taken<'v> {
    /// Takes `variables`, which must be distinct.
    pub(crate) fn new(variables: &'v [&'v Variable]) -> Result<Taken<'v>> {
        let mut taken = Taken { variables, buffers: [const { None }; MAX_OUTPUTS] };
        for _ in variables {
            let open = variables.iter().zip(&mut taken.buffers).filter(|(_, buffer)| buffer.is_none());
            if let Some((variable, buffer)) = open.min_by_key(|(variable, _)| variable.id()) {
                *buffer = Some(variable.take()?);
            }
        }
        Ok(taken)
    }

    /// Returns the buffer of each variable, in the order of the variables.
    pub(crate) fn buffers_mut(&mut self) -> impl Iterator<Item = &mut Buffer> {
        self.buffers.iter_mut().flatten().filter_map(Shared::get_mut)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (variable, buffer) in self.variables.iter().zip(&mut self.buffers) {
            buffer.take().into_iter().for_each(|buffer| variable.put(buffer));
        }
    }
}

impl PartialEq for Variable {
    fn eq(&self, other: &Variable) -> bool {
        self.id() == other.id()
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tensor_type() {
            Ok(tensor_type) => write!(f, "Variable({:?}, {tensor_type})", self.cell.name),
            Err(_) => write!(f, "Variable({:?}, unbuilt)", self.cell.name),
        }
    }
}
