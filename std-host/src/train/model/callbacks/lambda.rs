//! Closures as callbacks.

use super::{Callback, Logs, Model};
use gradlet_core::Result;
use std::ops::ControlFlow;

/// A function with the number of a step or an epoch, and the logs.
type WithLogs<'a> = Box<dyn FnMut(usize, &Logs) + 'a>;

/// Keras's `LambdaCallback`: calls functions at fixed points of training. Epochs and steps are counted from 0.
///
/// ```
/// use gradlet::train::callbacks::LambdaCallback;
/// let mut losses = Vec::new();
/// let keep = LambdaCallback::new().on_epoch_end(|_, logs| losses.push(logs.get("loss")));
/// ```
#[derive(Default)]
pub struct LambdaCallback<'a> {
    train_begin: Option<Box<dyn FnMut() + 'a>>,
    epoch_begin: Option<Box<dyn FnMut(usize) + 'a>>,
    batch_end: Option<WithLogs<'a>>,
    epoch_end: Option<WithLogs<'a>>,
    train_end: Option<Box<dyn FnMut() + 'a>>,
}

impl<'a> LambdaCallback<'a> {
    /// Creates a callback that calls nothing.
    pub fn new() -> Self {
        LambdaCallback::default()
    }

    /// Calls `function` before the first epoch.
    pub fn on_train_begin(self, function: impl FnMut() + 'a) -> Self {
        LambdaCallback { train_begin: Some(Box::new(function)), ..self }
    }

    /// Calls `function` before each epoch, with its number.
    pub fn on_epoch_begin(self, function: impl FnMut(usize) + 'a) -> Self {
        LambdaCallback { epoch_begin: Some(Box::new(function)), ..self }
    }

    /// Calls `function` after each step, with its number in the epoch and the logs of the epoch so far.
    pub fn on_batch_end(self, function: impl FnMut(usize, &Logs) + 'a) -> Self {
        LambdaCallback { batch_end: Some(Box::new(function)), ..self }
    }

    /// Calls `function` after each epoch, with its number and logs.
    pub fn on_epoch_end(self, function: impl FnMut(usize, &Logs) + 'a) -> Self {
        LambdaCallback { epoch_end: Some(Box::new(function)), ..self }
    }

    /// Calls `function` after the last epoch.
    pub fn on_train_end(self, function: impl FnMut() + 'a) -> Self {
        LambdaCallback { train_end: Some(Box::new(function)), ..self }
    }
}

impl Callback for LambdaCallback<'_> {
    fn on_train_begin(&mut self, _: &Model) -> Result<()> {
        self.train_begin.iter_mut().for_each(|function| function());
        Ok(())
    }

    fn on_epoch_begin(&mut self, _: &Model, epoch: usize) -> Result<()> {
        self.epoch_begin.iter_mut().for_each(|function| function(epoch));
        Ok(())
    }

    fn reads_batches(&self) -> bool {
        self.batch_end.is_some()
    }

    fn on_batch_end(&mut self, _: &Model, step: usize, logs: &Logs) -> Result<ControlFlow<()>> {
        self.batch_end.iter_mut().for_each(|function| function(step, logs));
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(&mut self, _: &Model, epoch: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        self.epoch_end.iter_mut().for_each(|function| function(epoch, logs));
        Ok(ControlFlow::Continue(()))
    }

    fn on_train_end(&mut self, _: &Model) -> Result<()> {
        self.train_end.iter_mut().for_each(|function| function());
        Ok(())
    }
}
