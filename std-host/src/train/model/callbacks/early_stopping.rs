//! Early stopping.

use super::monitor::{Mode, Monitor};
use super::{Callback, Logs, Model};
use gradlet_core::{Result, Tensor};
use std::ops::ControlFlow;

/// Keras's `EarlyStopping`: stops when a number has not become better for some epochs.
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
    /// Stops after the first epoch in which `val_loss` is not better.
    pub fn new() -> EarlyStopping {
        EarlyStopping::default()
    }

    /// What to watch.
    pub fn monitor(mut self, name: &str) -> EarlyStopping {
        self.monitor.name = name.into();
        self
    }

    /// By how much it must be better to count.
    pub fn min_delta(mut self, min_delta: f64) -> EarlyStopping {
        self.monitor.min_delta = min_delta;
        self
    }

    /// How many epochs to wait for a better one.
    pub fn patience(self, patience: usize) -> EarlyStopping {
        EarlyStopping { patience, ..self }
    }

    /// Whether it should be small or large.
    pub fn mode(mut self, mode: Mode) -> EarlyStopping {
        self.monitor.mode = mode;
        self
    }

    /// What it must be better than in any case.
    pub fn baseline(self, baseline: f64) -> EarlyStopping {
        EarlyStopping { baseline: Some(baseline), ..self }
    }

    /// Whether the model gets the weights back that it had after its best epoch.
    pub fn restore_best_weights(self, restore: bool) -> EarlyStopping {
        EarlyStopping { restore_best_weights: restore, ..self }
    }

    /// How many epochs do not count at all.
    pub fn start_from_epoch(self, epoch: usize) -> EarlyStopping {
        EarlyStopping { start_from_epoch: epoch, ..self }
    }

    /// The epoch, counted from 0, after which it stopped.
    pub fn stopped_epoch(&self) -> Option<usize> {
        self.stopped_epoch
    }

    /// The best epoch, counted from 0.
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
