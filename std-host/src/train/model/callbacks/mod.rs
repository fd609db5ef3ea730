//! Callbacks: hooks between the steps and epochs of `fit`, with Keras's names, arguments and defaults.

mod csv_logger;
mod early_stopping;
mod lambda;
mod learning_rate;
mod model_checkpoint;
mod monitor;
mod tensor_board;
mod terminate_on_nan;

pub use csv_logger::CsvLogger;
pub use early_stopping::EarlyStopping;
pub use lambda::LambdaCallback;
pub use learning_rate::{LearningRateScheduler, ReduceLROnPlateau};
pub use model_checkpoint::ModelCheckpoint;
pub use monitor::Mode;
pub use tensor_board::{TensorBoard, UpdateFreq};
pub use terminate_on_nan::TerminateOnNaN;

use super::{Batch, Logs, Model};
use gradlet_core::{Error, Result};
use std::ops::ControlFlow;

/// A set of hooks that [`Model::fit`] calls. A hook that returns `ControlFlow::Break(())` stops training after the current step or epoch.
///
/// To read a callback's state afterwards, pass `&mut` of it to `fit`.
///
/// ```
/// use gradlet::train::{Callback, Logs, Model};
/// use std::ops::ControlFlow;
///
/// /// Stops as soon as the loss is small.
/// struct Enough;
/// impl Callback for Enough {
///     fn on_epoch_end(&mut self, _: &Model, _: usize, logs: &mut Logs) -> gradlet::Result<ControlFlow<()>> {
///         let small = logs.get("loss").is_some_and(|loss| loss < 0.01);
///         Ok(if small { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
///     }
/// }
/// ```
pub trait Callback {
    /// Called before the first step, when the model is built.
    fn on_train_begin(&mut self, model: &Model) -> Result<()> {
        let _ = model;
        Ok(())
    }

    /// Called before an epoch. Epochs are counted from 0.
    fn on_epoch_begin(&mut self, model: &Model, epoch: usize) -> Result<()> {
        let _ = (model, epoch);
        Ok(())
    }

    /// Called before a step, with its batch. Steps are counted from 0 in each epoch.
    fn on_batch_begin(&mut self, model: &Model, step: usize, batch: &Batch) -> Result<()> {
        let _ = (model, step, batch);
        Ok(())
    }

    /// True if [`on_batch_end`](Callback::on_batch_end) is to be called, as it is by default. If no callback of a training reads the logs
    /// of steps, a GPU begins the next step before the host knows the results of the last one.
    fn reads_batches(&self) -> bool {
        true
    }

    /// Called after a step. The logs cover all steps of the epoch so far.
    fn on_batch_end(&mut self, model: &Model, step: usize, logs: &Logs) -> Result<ControlFlow<()>> {
        let _ = (model, step, logs);
        Ok(ControlFlow::Continue(()))
    }

    /// Called after an epoch and its validation. Values that the callback adds to the logs are shown, and kept in the history.
    fn on_epoch_end(&mut self, model: &Model, epoch: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        let _ = (model, epoch, logs);
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the reason for which this callback stopped the training, if it did. [`Model::fit`] shows the reason, and keeps it in
    /// [`History::stop_reason`](crate::train::History::stop_reason). By default there is none.
    fn stop_reason(&self) -> Option<String> {
        None
    }

    /// Called at the end of training. It is not called if training fails.
    fn on_train_end(&mut self, model: &Model) -> Result<()> {
        let _ = model;
        Ok(())
    }
}

macro_rules! transparent {
    ($($ty:ty),*) => {$(
        impl<C: Callback + ?Sized> Callback for $ty {
            fn on_train_begin(&mut self, model: &Model) -> Result<()> {
                (**self).on_train_begin(model)
            }
            fn on_epoch_begin(&mut self, model: &Model, epoch: usize) -> Result<()> {
                (**self).on_epoch_begin(model, epoch)
            }
            fn on_batch_begin(&mut self, model: &Model, step: usize, batch: &Batch) -> Result<()> {
                (**self).on_batch_begin(model, step, batch)
            }
            fn reads_batches(&self) -> bool {
                (**self).reads_batches()
            }
            fn on_batch_end(&mut self, model: &Model, step: usize, logs: &Logs) -> Result<ControlFlow<()>> {
                (**self).on_batch_end(model, step, logs)
            }
            fn on_epoch_end(&mut self, model: &Model, epoch: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
                (**self).on_epoch_end(model, epoch, logs)
            }
            fn stop_reason(&self) -> Option<String> {
                (**self).stop_reason()
            }
            fn on_train_end(&mut self, model: &Model) -> Result<()> {
                (**self).on_train_end(model)
            }
        }
    )*};
}
transparent!(&mut C, Box<C>);

/// Creates an error about an invalid setting.
fn invalid(text: String) -> Error {
    Error::message(text)
}
