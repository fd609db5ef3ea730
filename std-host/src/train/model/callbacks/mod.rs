//! Callbacks: what happens between the steps of `fit`, with Keras's names, arguments and defaults.

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

/// What is told of the course of `fit`, and may end it: `ControlFlow::Break(())` stops after this step or epoch.
///
/// To ask a callback afterwards, give `fit` a `&mut` of it.
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
    /// The model is built; no step is done.
    fn on_train_begin(&mut self, model: &Model) -> Result<()> {
        let _ = model;
        Ok(())
    }

    /// An epoch, counted from 0, begins.
    fn on_epoch_begin(&mut self, model: &Model, epoch: usize) -> Result<()> {
        let _ = (model, epoch);
        Ok(())
    }

    /// A step, counted from 0, begins, with this batch.
    fn on_batch_begin(&mut self, model: &Model, step: usize, batch: &Batch) -> Result<()> {
        let _ = (model, step, batch);
        Ok(())
    }

    /// A step, counted from 0, is done. The logs are over all steps of the epoch so far.
    fn on_batch_end(&mut self, model: &Model, step: usize, logs: &Logs) -> Result<ControlFlow<()>> {
        let _ = (model, step, logs);
        Ok(ControlFlow::Continue(()))
    }

    /// An epoch, counted from 0, is done, and validated. What is added to the logs is shown, and kept in the history.
    fn on_epoch_end(&mut self, model: &Model, epoch: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        let _ = (model, epoch, logs);
        Ok(ControlFlow::Continue(()))
    }

    /// Training is over, but did not fail.
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
            fn on_batch_end(&mut self, model: &Model, step: usize, logs: &Logs) -> Result<ControlFlow<()>> {
                (**self).on_batch_end(model, step, logs)
            }
            fn on_epoch_end(&mut self, model: &Model, epoch: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
                (**self).on_epoch_end(model, epoch, logs)
            }
            fn on_train_end(&mut self, model: &Model) -> Result<()> {
                (**self).on_train_end(model)
            }
        }
    )*};
}
transparent!(&mut C, Box<C>);

/// A setting that makes no sense.
fn invalid(text: String) -> Error {
    Error::message(text)
}
