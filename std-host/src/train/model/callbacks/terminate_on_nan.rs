//! The end of a training that has failed.

use super::{Callback, Logs, Model};
use gradlet_core::{Error, Result};
use std::ops::ControlFlow;

/// Keras's `TerminateOnNaN`: stops when the loss is NaN or infinite.
///
/// What made it so is told by `Fit::check_numerics`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TerminateOnNaN {
    raise_error: bool,
}

impl TerminateOnNaN {
    /// Stops without an error.
    pub fn new() -> TerminateOnNaN {
        TerminateOnNaN::default()
    }

    /// Whether that is an error.
    pub fn raise_error(self, raise_error: bool) -> TerminateOnNaN {
        TerminateOnNaN { raise_error }
    }
}

impl Callback for TerminateOnNaN {
    fn on_batch_end(&mut self, _: &Model, step: usize, logs: &Logs) -> Result<ControlFlow<()>> {
        match logs.get("loss").filter(|loss| !loss.is_finite()) {
            None => Ok(ControlFlow::Continue(())),
            Some(_) if !self.raise_error => Ok(ControlFlow::Break(())),
            Some(loss) => Err(Error::message(format!("the loss is {loss} after step {}", step + 1))),
        }
    }
}
