//! State that checkpoints keep together with variables, and variables that appear late.

use super::{Module, Visitor};
use crate::base::dtype::Element;
use crate::base::error::Result;
use crate::base::sync::{Lock, Shared, ThreadSafe};
use crate::ops::portable_cpu;
use crate::tensor::Tensor;
use core::cell::Cell;

/// State that is not a variable but is kept in checkpoints. A single tensor must be able to hold it. Examples are an atomic number,
/// a number in a [`Cell`](core::cell::Cell), and the position in a dataset.
///
/// ```
/// use gradlet_core::layers::{Module, State};
/// let epoch = core::cell::Cell::new(3i64);
/// let saved = State::value(&epoch)?;
/// epoch.set(0);
/// epoch.restore(&saved)?;
/// assert_eq!(epoch.get(), 3);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub trait State {
    /// Returns the value to keep.
    fn value(&self) -> Result<Tensor>;

    /// Restores a value that was kept. Fails if `value` is not a valid value of this state.
    fn restore(&self, value: &Tensor) -> Result<()>;
}

/// Hook for variables that a module creates after its construction. The values of a checkpoint that is restored before these variables
/// exist wait here.
///
/// An optimizer, for example, creates its state once it is given the variables to train. Such
/// a module has one `Later`, passes it to its visitors, and calls [`created`](Later::created) once the new variables exist but have
/// no value yet.
#[derive(Default)]
pub struct Later(Lock<Option<Shared<dyn Waiting>>>);

/// A listener that waits for new variables. It is called each time that a module has created some.
pub trait Waiting: ThreadSafe {
    /// Handles new variables of `module`, which have no values yet.
    /// [`Variable::first_value_from`](crate::Variable::first_value_from) sets their first values.
    fn created(&self, module: &dyn Module) -> Result<()>;
}

impl Later {
    /// Sets the listener that waits for new variables. It replaces the listener of an earlier call.
    pub fn wait(&self, waiting: Shared<dyn Waiting>) {
        *self.0.lock() = Some(waiting);
    }

    /// Notifies the listener, if one is set, that `module` has new variables, which have no value yet.
    pub fn created(&self, module: &dyn Module) -> Result<()> {
        let waiting = self.0.lock().clone();
        waiting.map_or(Ok(()), |waiting| waiting.created(module))
    }
}

impl<T: Element + Copy> State for Cell<T> {
    fn value(&self) -> Result<Tensor> {
        Ok(Tensor::scalar(&portable_cpu(), self.get()))
    }

    fn restore(&self, value: &Tensor) -> Result<()> {
        self.set(value.item::<T>()?);
        Ok(())
    }
}

impl<T: Element + Copy> Module for Cell<T> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        visitor.state(self);
    }
}

macro_rules! atomics {
    ($($width:literal $atomic:ident $number:ty),*) => {$(
        #[cfg(target_has_atomic = $width)]
        impl State for core::sync::atomic::$atomic {
            fn value(&self) -> Result<Tensor> {
                Ok(Tensor::scalar(&portable_cpu(), self.load(core::sync::atomic::Ordering::Relaxed)))
            }

            fn restore(&self, value: &Tensor) -> Result<()> {
                self.store(value.item::<$number>()?, core::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
        }

        #[cfg(target_has_atomic = $width)]
        impl Module for core::sync::atomic::$atomic {
            fn visit(&self, visitor: &mut dyn Visitor) {
                visitor.state(self);
            }
        }
    )*};
}
atomics!("32" AtomicI32 i32, "64" AtomicI64 i64);
