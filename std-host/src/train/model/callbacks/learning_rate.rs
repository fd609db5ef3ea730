//! Changes of the learning rate between epochs.

use super::monitor::{Mode, Monitor};
use super::{Callback, Logs, Model, invalid};
use gradlet_core::Result;
use std::ops::ControlFlow;

pub(super) fn rate(model: &Model) -> Result<f64> {
    model.optimizer()?.learning_rate(model.scope())?.item::<f32>().map(f64::from)
}

fn set_rate(model: &Model, rate: f64) -> Result<()> {
    model.optimizer()?.set_learning_rate(model.scope(), rate as f32)
}

/// Keras's `LearningRateScheduler`: sets the learning rate of each epoch. A function computes it from the number of the epoch,
/// counted from 0, and the previous rate. The logs contain it as `learning_rate`.
///
/// ```
/// use gradlet::train::callbacks::LearningRateScheduler;
/// let halve = LearningRateScheduler::new(|epoch, rate| if epoch < 10 { rate } else { rate / 2.0 });
/// ```
pub struct LearningRateScheduler<F>(F);

impl<F: FnMut(usize, f64) -> f64> LearningRateScheduler<F> {
    /// Creates a scheduler with this function.
    pub fn new(schedule: F) -> LearningRateScheduler<F> {
        LearningRateScheduler(schedule)
    }
}

impl<F: FnMut(usize, f64) -> f64> Callback for LearningRateScheduler<F> {
    fn reads_batches(&self) -> bool {
        false
    }

    fn on_epoch_begin(&mut self, model: &Model, epoch: usize) -> Result<()> {
        set_rate(model, (self.0)(epoch, rate(model)?))
    }

    fn on_epoch_end(&mut self, model: &Model, _: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        logs.set("learning_rate", rate(model)?);
        Ok(ControlFlow::Continue(()))
    }
}

/// Keras's `ReduceLROnPlateau`: reduces the learning rate when a monitored number has not improved for some epochs. The logs
/// contain the rate as `learning_rate`.
///
/// ```
/// use gradlet::train::callbacks::ReduceLROnPlateau;
/// let reduce = ReduceLROnPlateau::new().monitor("loss").factor(0.5).patience(2);
/// ```
#[derive(Clone, Debug)]
pub struct ReduceLROnPlateau {
    monitor: Monitor,
    factor: f64,
    patience: usize,
    cooldown: usize,
    min_lr: f64,
    best: Option<f64>,
    wait: usize,
    cooling: usize,
}

impl Default for ReduceLROnPlateau {
    fn default() -> ReduceLROnPlateau {
        let monitor = Monitor::new("val_loss", 1e-4);
        ReduceLROnPlateau { monitor, factor: 0.1, patience: 10, cooldown: 0, min_lr: 0.0, best: None, wait: 0, cooling: 0 }
    }
}

impl ReduceLROnPlateau {
    /// Creates a callback that multiplies the rate by 0.1 if `val_loss` has not improved for 10 epochs.
    pub fn new() -> ReduceLROnPlateau {
        ReduceLROnPlateau::default()
    }

    /// Sets the name of the monitored number.
    pub fn monitor(mut self, name: &str) -> ReduceLROnPlateau {
        self.monitor.name = name.into();
        self
    }

    /// Sets the factor by which a reduction multiplies the rate. It must be less than 1.
    pub fn factor(self, factor: f64) -> ReduceLROnPlateau {
        ReduceLROnPlateau { factor, ..self }
    }

    /// Sets the number of epochs to wait for an improvement.
    pub fn patience(self, patience: usize) -> ReduceLROnPlateau {
        ReduceLROnPlateau { patience, ..self }
    }

    /// Sets the direction in which the number improves.
    pub fn mode(mut self, mode: Mode) -> ReduceLROnPlateau {
        self.monitor.mode = mode;
        self
    }

    /// Sets the minimum change that counts as an improvement.
    pub fn min_delta(mut self, min_delta: f64) -> ReduceLROnPlateau {
        self.monitor.min_delta = min_delta;
        self
    }

    /// Sets the number of epochs after a reduction in which the rate is not reduced again.
    pub fn cooldown(self, cooldown: usize) -> ReduceLROnPlateau {
        ReduceLROnPlateau { cooldown, ..self }
    }

    /// Sets the minimum rate.
    pub fn min_lr(self, min_lr: f64) -> ReduceLROnPlateau {
        ReduceLROnPlateau { min_lr, ..self }
    }

    fn reduce(&mut self, model: &Model) -> Result<()> {
        let old = rate(model)?;
        if old > f64::from(self.min_lr as f32) {
            set_rate(model, (old * self.factor).max(self.min_lr))?;
            (self.cooling, self.wait) = (self.cooldown, 0);
        }
        Ok(())
    }
}

impl Callback for ReduceLROnPlateau {
    fn reads_batches(&self) -> bool {
        false
    }

    fn on_train_begin(&mut self, _: &Model) -> Result<()> {
        (self.best, self.wait, self.cooling) = (None, 0, 0);
        if self.factor < 1.0 {
            Ok(())
        } else {
            Err(invalid(format!("the factor of ReduceLROnPlateau must be less than 1, not {}", self.factor)))
        }
    }

    fn on_epoch_end(&mut self, model: &Model, _: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        logs.set("learning_rate", rate(model)?);
        let Some(value) = self.monitor.value("ReduceLROnPlateau", logs) else { return Ok(ControlFlow::Continue(())) };
        if self.cooling > 0 {
            self.cooling -= 1;
            self.wait = 0;
        }
        if self.monitor.is_better(value, self.best)? {
            (self.best, self.wait) = (Some(value), 0);
        } else if self.cooling == 0 {
            self.wait += 1;
            if self.wait >= self.patience {
                self.reduce(model)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
