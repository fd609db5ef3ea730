//! The end of training when the loss is not finite.

use super::{Callback, Logs, Model};
use gradlet_core::{Error, Result};
use std::ops::ControlFlow;

/// Keras's `TerminateOnNaN`: stops training when the loss is NaN or infinite.
///
/// The reason is shown and kept in [`History::stop_reason`](crate::train::History::stop_reason), in Keras's words:
/// `Batch 3: Invalid loss, terminating training`, where steps are counted from 0. To find the op that produced the first such number, use
/// [`Fit::check_numerics`](crate::train::Fit::check_numerics).
#[derive(Clone, Copy, Debug, Default)]
pub struct TerminateOnNaN {
    raise_error: bool,
    /// Step whose loss stopped the training, counted from 0.
    stopped: Option<usize>,
}

impl TerminateOnNaN {
    /// Creates a callback that stops without an error.
    pub fn new() -> TerminateOnNaN {
        TerminateOnNaN::default()
    }

    /// Makes a loss that is not finite an error, if `raise_error` is true.
    pub fn raise_error(self, raise_error: bool) -> TerminateOnNaN {
        TerminateOnNaN { raise_error, ..self }
    }
}

impl Callback for TerminateOnNaN {
    fn on_train_begin(&mut self, _: &Model) -> Result<()> {
        self.stopped = None;
        Ok(())
    }

    fn on_batch_end(&mut self, _: &Model, step: usize, logs: &Logs) -> Result<ControlFlow<()>> {
        match logs.get("loss").filter(|loss| !loss.is_finite()) {
            None => Ok(ControlFlow::Continue(())),
            Some(_) if !self.raise_error => {
                self.stopped = Some(step);
                Ok(ControlFlow::Break(()))
            }
            Some(loss) => Err(Error::message(format!("the loss is {loss} after step {}", step + 1))),
        }
    }

    fn stop_reason(&self) -> Option<String> {
        self.stopped.map(|step| format!("Batch {step}: Invalid loss, terminating training"))
    }
}
