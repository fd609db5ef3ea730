//! Early stopping.

use super::monitor::{Mode, Monitor};
use super::{Callback, Logs, Model};
use gradlet_core::{Result, Tensor};
use std::ops::ControlFlow;

/// Keras's `EarlyStopping`: stops training when a monitored number has not improved for some epochs.
///
/// ```
/// use gradlet::train::callbacks::EarlyStopping;
/// let stop = EarlyStopping::new().monitor("val_accuracy").patience(3).restore_best_weights(true);
/// ```
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    monitor: Monitor,
    patience: usize,
    baseline: Option<f64>,
    restore_best_weights: bool,
    start_from_epoch: usize,
    wait: usize,
    best: Option<f64>,
    best_epoch: usize,
    best_weights: Option<Vec<Tensor>>,
    stopped_epoch: Option<usize>,
}

impl Default for EarlyStopping {
    fn default() -> EarlyStopping {
        EarlyStopping {
            monitor: Monitor::new("val_loss", 0.0),
            patience: 0,
            baseline: None,
            restore_best_weights: false,
            start_from_epoch: 0,
            wait: 0,
            best: None,
            best_epoch: 0,
            best_weights: None,
            stopped_epoch: None,
        }
    }
}

impl EarlyStopping {
    /// Creates a callback that stops after the first epoch in which `val_loss` does not improve.
    pub fn new() -> EarlyStopping {
        EarlyStopping::default()
    }

    /// Sets the name of the monitored number.
    pub fn monitor(mut self, name: &str) -> EarlyStopping {
        self.monitor.name = name.into();
        self
    }

    /// Sets the minimum change that counts as an improvement.
    pub fn min_delta(mut self, min_delta: f64) -> EarlyStopping {
        self.monitor.min_delta = min_delta;
        self
    }

    /// Sets the number of epochs to wait for an improvement.
    pub fn patience(self, patience: usize) -> EarlyStopping {
        EarlyStopping { patience, ..self }
    }

    /// Sets the direction in which the number improves.
    pub fn mode(mut self, mode: Mode) -> EarlyStopping {
        self.monitor.mode = mode;
        self
    }

    /// Sets a baseline. Epochs that are not better than it count as epochs without improvement.
    pub fn baseline(self, baseline: f64) -> EarlyStopping {
        EarlyStopping { baseline: Some(baseline), ..self }
    }

    /// Restores the weights of the best epoch at the end of training, if `restore` is true.
    pub fn restore_best_weights(self, restore: bool) -> EarlyStopping {
        EarlyStopping { restore_best_weights: restore, ..self }
    }

    /// Sets the number of epochs at the beginning that are ignored.
    pub fn start_from_epoch(self, epoch: usize) -> EarlyStopping {
        EarlyStopping { start_from_epoch: epoch, ..self }
    }

    /// Returns the epoch, counted from 0, after which this callback stopped the training, or `None` if it did not.
    pub fn stopped_epoch(&self) -> Option<usize> {
        self.stopped_epoch
    }

    /// Returns the best epoch, counted from 0.
    pub fn best_epoch(&self) -> usize {
        self.best_epoch
    }

    fn remember(&mut self, model: &Model, epoch: usize) -> Result<()> {
        self.best_epoch = epoch;
        if self.restore_best_weights {
            self.best_weights = Some(model.get_weights()?);
        }
        Ok(())
    }
}

impl Callback for EarlyStopping {
    fn reads_batches(&self) -> bool {
        false
    }

    fn on_train_begin(&mut self, _: &Model) -> Result<()> {
        (self.wait, self.best, self.best_epoch, self.best_weights, self.stopped_epoch) = (0, None, 0, None, None);
        Ok(())
    }

    fn on_epoch_end(&mut self, model: &Model, epoch: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        let value = self.monitor.value("EarlyStopping", logs).filter(|_| epoch >= self.start_from_epoch);
        let Some(value) = value else { return Ok(ControlFlow::Continue(())) };
        if self.restore_best_weights && self.best_weights.is_none() {
            self.remember(model, epoch)?;
        }
        self.wait += 1;
        if self.monitor.is_better(value, self.best)? {
            self.best = Some(value);
            self.remember(model, epoch)?;
            if self.baseline.is_none() || self.monitor.is_better(value, self.baseline)? {
                self.wait = 0;
            }
        } else if self.wait >= self.patience && epoch > 0 {
            self.stopped_epoch = Some(epoch);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_train_end(&mut self, model: &Model) -> Result<()> {
        self.best_weights.as_ref().map_or(Ok(()), |weights| model.set_weights(weights))
    }
}
