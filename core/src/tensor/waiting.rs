//! Waiting for another thread, through the device. On the host, the waiting thread sleeps.
//!
//! A [`Lock`] is held briefly, so a waiting thread spins. A [`Monitor`] guards a value that a thread may take for as long as a
//! function runs.

use crate::base::sync::Lock;
use crate::tensor::device::Device;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// Value with a list of threads that wait until it changes.
pub(crate) struct Monitor<T>(Lock<Watched<T>>);

struct Watched<T> {
    value: T,
    /// Devices whose threads wait for a change.
    waiting: Vec<Device>,
}

impl<T> Monitor<T> {
    pub(crate) const fn new(value: T) -> Monitor<T> {
        Monitor(Lock::new(Watched { value, waiting: Vec::new() }))
    }

    /// Calls `look` with the current value.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.0.lock().value)
    }

    /// Calls `change` with the value and wakes the waiting threads.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut watched = self.0.lock();
        let result = change(&mut watched.value);
        let waiting = core::mem::take(&mut watched.waiting);
        drop(watched);
        waiting.iter().for_each(Device::wake);
        result
    }

    /// Repeats `attempt` until it returns `Ok`, and returns the value in it. A failed attempt returns the device through which this
    /// thread waits for a change.
    pub(crate) fn when<R>(&self, mut attempt: impl FnMut(&mut T) -> Result<R, Device>) -> R {
        loop {
            let device = match self.attempt(&mut attempt) {
                Ok(result) => return result,
                Err(device) => device,
            };
            let mut result = None;
            device.wait(&mut || {
                result = self.attempt(&mut attempt).ok();
                result.is_some()
            });
            if let Some(result) = result {
                return result;
            }
        }
    }

    /// Makes one attempt. After a failure it registers the returned device, so that the next change wakes the threads that wait
    /// through it.
    fn attempt<R>(&self, attempt: &mut impl FnMut(&mut T) -> Result<R, Device>) -> Result<R, Device> {
        let mut watched = self.0.lock();
        let result = attempt(&mut watched.value);
        if let Err(device) = &result
            && !watched.waiting.iter().any(|other| other.is(device))
        {
            watched.waiting.push(device.clone());
        }
        result
    }
}

impl<T: Default> Monitor<Option<T>> {
    /// Takes the value for this thread. If another thread has it, waits through `device` until that thread puts it back. Dropping
    /// the returned turn puts the value back.
    pub(crate) fn turn(&self, device: &Device) -> Turn<'_, T> {
        Turn { monitor: self, value: self.when(|value| value.take().ok_or_else(|| device.clone())) }
    }
}

/// Value that one thread has taken. Drop puts it back.
pub(crate) struct Turn<'m, T: Default> {
    monitor: &'m Monitor<Option<T>>,
    value: T,
}

impl<T: Default> Deref for Turn<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Default> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Default> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let value = core::mem::take(&mut self.value);
        self.monitor.change(|place| *place = Some(value));
    }
}
