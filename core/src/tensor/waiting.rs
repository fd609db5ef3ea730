//! Waiting for another thread: asleep, as far as the device lets its threads sleep.
//!
//! A [`Lock`] is held for moments only, and who waits for it spins. What may take as long as a function runs is watched by a [`Monitor`].

use crate::base::sync::Lock;
use crate::tensor::device::Device;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// A value that threads wait for to change.
pub(crate) struct Monitor<T>(Lock<Watched<T>>);

struct Watched<T> {
    value: T,
    /// The devices whose threads wait for a change.
    waiting: Vec<Device>,
}

impl<T> Monitor<T> {
    pub(crate) const fn new(value: T) -> Monitor<T> {
        Monitor(Lock::new(Watched { value, waiting: Vec::new() }))
    }

    /// What `look` makes of the value as it is now.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.0.lock().value)
    }

    /// What `change` makes of the value. Who waits looks again.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut watched = self.0.lock();
        let result = change(&mut watched.value);
        let waiting = core::mem::take(&mut watched.waiting);
        drop(watched);
        waiting.iter().for_each(Device::wake);
        result
    }

    /// What `attempt` makes of the value, as soon as it succeeds. Until then it gives the device by whose means this thread waits.
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

    /// Whoever changes the value after an attempt that failed knows of its device.
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
    /// The value, for this thread alone until the turn is over. The others' threads wait for theirs, by the means of their devices.
    pub(crate) fn turn(&self, device: &Device) -> Turn<'_, T> {
        Turn { monitor: self, value: self.when(|value| value.take().ok_or_else(|| device.clone())) }
    }
}

/// A value that one thread has.
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
