//! Variables: what training changes. Their values are had and set only through a [`Scope`].

use crate::device::{Buffer, Device};
use crate::error::{Error, Result};
use crate::op::MAX_OUTPUTS;
use crate::scope::Scope;
use crate::shape::TensorType;
use crate::sync::{Lock, Shared};
use crate::tensor::Tensor;
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
    state: Lock<Option<State>>,
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

    fn of(cell: Cell) -> Variable {
        Variable { cell: Shared::new(cell), argument: false }
    }

    /// A trainable variable that [`Variable::create`] will give its value.
    pub fn deferred(name: &str) -> Variable {
        Variable::of(Cell { name: name.into(), trainable: true, state: Lock::new(None) })
    }

    /// As [`Variable::deferred`], but no optimizer trains it.
    pub fn untrained(name: &str) -> Variable {
        Variable::of(Cell { name: name.into(), trainable: false, state: Lock::new(None) })
    }

    /// Gives a deferred variable its first value; does nothing if it has one.
    pub fn create(&self, scope: &dyn Scope, value: &Tensor) -> Result<()> {
        let may_create = scope.handle().recorder.may_create();
        let mut state = self.cell.state.lock();
        if state.is_none() {
            let value = State::new(value)?;
            *state = Some(may_create.then_some(value).ok_or(Error::LateVariable)?);
        }
        Ok(())
    }

    /// Gives a deferred variable its first value, whatever scope is recording; does nothing if it has one.
    pub(crate) fn create_with(&self, value: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        let mut state = self.cell.state.lock();
        if state.is_none() {
            *state = Some(State::new(&value()?)?);
        }
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
        self.cell.state.lock().is_some()
    }

    /// The element type and shape. Fails with [`Error::Unbuilt`].
    pub fn tensor_type(&self) -> Result<TensorType> {
        self.cell.state.lock().as_ref().map(|state| state.tensor_type).ok_or(Error::Unbuilt)
    }

    /// What `use_buffer` makes of the buffer's place, once nobody computes in it.
    fn wait<R>(&self, mut use_buffer: impl FnMut(&mut Option<Shared<Buffer>>) -> R) -> Result<R> {
        loop {
            let mut guard = self.cell.state.lock();
            let state = guard.as_mut().ok_or(Error::Unbuilt)?;
            if state.buffer.is_some() {
                return Ok(use_buffer(&mut state.buffer));
            }
            let device = state.device.clone();
            drop(guard);
            device.pause();
        }
    }

    /// The value's bytes.
    pub(crate) fn buffer(&self) -> Result<Shared<Buffer>> {
        self.wait(|buffer| buffer.clone())?.ok_or(Error::Unbuilt)
    }

    /// The value as a computed tensor.
    pub(crate) fn value(&self) -> Result<Tensor> {
        Ok(Tensor::shared(self.tensor_type()?, self.buffer()?))
    }

    /// Checks that `value` can be assigned.
    pub(crate) fn accepts(&self, value: TensorType) -> Result<()> {
        let own = self.tensor_type()?;
        if own == value { Ok(()) } else { Err(Error::message(format!("variable {:?} is {own}, it cannot hold {value}", self.cell.name))) }
    }

    /// Sets the value to a computed tensor.
    pub(crate) fn set(&self, value: &Tensor) -> Result<()> {
        self.accepts(value.tensor_type())?;
        let value = value.buffer()?;
        let old = self.wait(|buffer| buffer.replace(value.clone()))?;
        drop(old);
        Ok(())
    }

    /// Takes the value's bytes away, to be computed in: they are copied if somebody else holds them. Until [`Variable::put`],
    /// all others wait. Who takes several variables, or reads some meanwhile, does so in the order of their `id`.
    pub(crate) fn take(&self) -> Result<Shared<Buffer>> {
        let mut buffer = self.wait(Option::take)?.ok_or(Error::Unbuilt)?;
        if Shared::get_mut(&mut buffer).is_none() {
            buffer = Shared::new(buffer.copy());
        }
        Ok(buffer)
    }

    /// Gives back what [`Variable::take`] took.
    pub(crate) fn put(&self, buffer: Shared<Buffer>) {
        if let Some(state) = self.cell.state.lock().as_mut() {
            state.buffer = Some(buffer);
        }
    }

    /// The same variable, as an argument of a function, or as one that its body names.
    pub(crate) fn as_argument(&self, argument: bool) -> Variable {
        Variable { cell: self.cell.clone(), argument }
    }

    /// Whether this is an argument of a function.
    pub(crate) fn is_argument(&self) -> bool {
        self.argument
    }

    /// What tells this variable from any other.
    pub(crate) fn id(&self) -> usize {
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
