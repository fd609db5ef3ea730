//! Variables: what training changes. Their values are had and set only through a [`Scope`].

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::MAX_OUTPUTS;
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared, ThreadSafe};
use crate::tensor::Tensor;
use crate::tensor::device::{Buffer, Device};
use crate::tensor::scope::Scope;
use crate::tensor::waiting::Monitor;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// A named value that can be assigned. Cloning shares it.
///
/// A layer makes its variables with [`Variable::deferred`] and creates them in `build`, when the input shape is known.
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
pub struct Variable {
    cell: Shared<Cell>,
    /// Whether this handle came to a function's body as an argument.
    argument: bool,
}

struct Cell {
    name: String,
    trainable: bool,
    state: Monitor<Option<State>>,
    /// The turn of who creates it.
    creation: Monitor<Option<()>>,
    /// Where the first value comes from, if not from who creates it.
    first: Lock<Option<Shared<dyn FirstValue>>>,
}

/// Where the first value of a variable comes from, in place of that with which it is created: a checkpoint.
pub trait FirstValue: ThreadSafe {
    /// The value for a variable that would begin with `initial`: of the same type, and on the same device.
    fn value(&self, initial: &Tensor) -> Result<Tensor>;
}

struct State {
    tensor_type: TensorType,
    device: Device,
    /// `None` while somebody computes in it.
    buffer: Option<Shared<Buffer>>,
}

impl State {
    fn new(value: &Tensor) -> Result<State> {
        let buffer = value.buffer()?.clone();
        Ok(State { tensor_type: value.tensor_type(), device: buffer.device().clone(), buffer: Some(buffer) })
    }
}

impl Variable {
    /// A trainable variable with this first value, which must be computed, not traced.
    ///
    /// Fails with [`Error::LateVariable`] in a trace that is not its function's first.
    pub fn new(scope: &dyn Scope, name: &str, value: &Tensor) -> Result<Variable> {
        let variable = Variable::deferred(name);
        variable.create(scope, value)?;
        Ok(variable)
    }

    fn of(name: &str, trainable: bool) -> Variable {
        let (state, creation) = (Monitor::new(None), Monitor::new(Some(())));
        Variable { cell: Shared::new(Cell { name: name.into(), trainable, state, creation, first: Lock::new(None) }), argument: false }
    }

    /// A trainable variable that [`Variable::create`] will give its value.
    pub fn deferred(name: &str) -> Variable {
        Variable::of(name, true)
    }

    /// As [`Variable::deferred`], but no optimizer trains it.
    pub fn untrained(name: &str) -> Variable {
        Variable::of(name, false)
    }

    /// Gives a deferred variable its first value; does nothing if it has one. If the value is to come [from somewhere
    /// else](Variable::first_value_from), it is that one.
    pub fn create(&self, scope: &dyn Scope, value: &Tensor) -> Result<()> {
        if !self.is_built() && !scope.handle().recorder.may_create() {
            return Err(Error::LateVariable);
        }
        self.create_with(|| Ok(value.clone()))
    }

    /// Lets the first value come from `first`, once the variable is created: a checkpoint was restored before. Does nothing if it has a
    /// value.
    pub fn first_value_from(&self, first: Shared<dyn FirstValue>) {
        if !self.is_built() {
            *self.cell.first.lock() = Some(first);
        }
    }

    /// What the variable begins with, where `initial` is what it would begin with.
    fn first_value(&self, initial: &Tensor) -> Result<Tensor> {
        let Some(first) = self.cell.first.lock().clone() else { return Ok(initial.clone()) };
        let value = first.value(initial)?;
        if value.tensor_type() != initial.tensor_type() {
            return Err(self.refuse(initial.tensor_type(), value.tensor_type()));
        }
        *self.cell.first.lock() = None;
        Ok(value)
    }

    /// Gives a deferred variable its first value, whatever scope is recording; does nothing if it has one.
    pub(crate) fn create_with(&self, value: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        if self.is_built() {
            return Ok(());
        }
        let value = value()?;
        // A first value from elsewhere may be long in coming.
        let turn = self.cell.creation.turn(&value.device()?);
        if !self.is_built() {
            let state = State::new(&self.first_value(&value)?)?;
            self.cell.state.change(|place| *place = Some(state));
        }
        drop(turn);
        Ok(())
    }

    /// The name, without that of its layer.
    pub fn name(&self) -> &str {
        &self.cell.name
    }

    /// Whether optimizers train it.
    pub fn trainable(&self) -> bool {
        self.cell.trainable
    }

    /// Whether it has a value.
    pub fn is_built(&self) -> bool {
        self.cell.state.look(Option::is_some)
    }

    /// The element type and shape. Fails with [`Error::Unbuilt`].
    pub fn tensor_type(&self) -> Result<TensorType> {
        self.cell.state.look(|state| state.as_ref().map(|state| state.tensor_type)).ok_or(Error::Unbuilt)
    }

    /// Waits until `use_buffer` returns a value, and returns it. It returns `None` while a function computes in the buffer.
    fn wait<R>(&self, use_buffer: impl Fn(&mut Option<Shared<Buffer>>) -> Option<R>) -> Result<R> {
        self.cell.state.when(|state| match state {
            Some(state) => use_buffer(&mut state.buffer).map(Ok).ok_or_else(|| state.device.clone()),
            None => Ok(Err(Error::Unbuilt)),
        })
    }

    /// The value's bytes.
    pub(crate) fn buffer(&self) -> Result<Shared<Buffer>> {
        self.wait(|buffer| buffer.clone())
    }

    /// The value as a computed tensor.
    pub(crate) fn value(&self) -> Result<Tensor> {
        Ok(Tensor::shared(self.tensor_type()?, self.buffer()?))
    }

    /// Checks that `value` can be assigned.
    pub(crate) fn accepts(&self, value: TensorType) -> Result<()> {
        let own = self.tensor_type()?;
        if own == value { Ok(()) } else { Err(self.refuse(own, value)) }
    }

    fn refuse(&self, own: TensorType, value: TensorType) -> Error {
        Error::message(format!("variable {:?} is {own}, it cannot hold {value}", self.cell.name))
    }

    /// Lets `write` change the value's bytes where they lie, outside of every scope: for what reads them from a file, without a second
    /// copy in memory. They are the elements in row-major order, as the host has them; of bools each is 0 or 1, and what is not 0 becomes
    /// 1. Meanwhile, others who read or assign it wait.
    ///
    /// Fails with [`Error::Unbuilt`].
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
        let dtype = self.tensor_type()?.dtype;
        let variables = [self];
        let mut taken = Taken::new(&variables)?;
        let bytes = taken.bytes_mut().next().ok_or(Error::Internal)?;
        let result = write(bytes);
        if dtype == DType::Bool {
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(result)
    }

    /// Sets the value to a computed tensor.
    pub(crate) fn set(&self, value: &Tensor) -> Result<()> {
        self.accepts(value.tensor_type())?;
        let value = value.buffer()?;
        let old = self.wait(|buffer| buffer.as_mut().map(|own| core::mem::replace(own, value.clone())))?;
        drop(old);
        Ok(())
    }

    /// Takes the value's bytes away, to be computed in: they are copied if somebody else holds them. Until [`Variable::put`],
    /// all others wait. Who takes several variables, or reads some meanwhile, does so in the order of their `id`.
    pub(crate) fn take(&self) -> Result<Shared<Buffer>> {
        let mut buffer = self.wait(Option::take)?;
        if Shared::get_mut(&mut buffer).is_none() {
            buffer = Shared::new(buffer.copy());
        }
        Ok(buffer)
    }

    /// Gives back what [`Variable::take`] took.
    pub(crate) fn put(&self, buffer: Shared<Buffer>) {
        self.cell.state.change(|state| {
            if let Some(state) = state {
                state.buffer = Some(buffer);
            }
        });
    }

    /// The same variable, as an argument of a function, or as one that its body names.
    pub(crate) fn as_argument(&self, argument: bool) -> Variable {
        Variable { cell: self.cell.clone(), argument }
    }

    /// Whether this is an argument of a function.
    pub(crate) fn is_argument(&self) -> bool {
        self.argument
    }

    /// What tells this variable from any other that lives.
    pub fn id(&self) -> usize {
        Shared::as_ptr(&self.cell) as usize
    }
}

/// The bytes of some variables, taken to be computed in: at most as many as an op has outputs. They are given back in any case.
pub(crate) struct Taken<'v> {
    variables: &'v [&'v Variable],
    buffers: [Option<Shared<Buffer>>; MAX_OUTPUTS],
}

impl<'v> Taken<'v> {
    /// Takes `variables`, which differ from one another.
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

    /// The bytes of each.
    pub(crate) fn bytes_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.buffers.iter_mut().flatten().filter_map(|buffer| Shared::get_mut(buffer).map(Buffer::bytes_mut))
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
