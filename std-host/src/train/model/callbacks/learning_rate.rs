//! Learning rates that change between epochs.

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

/// Keras's `LearningRateScheduler`: a function of the epoch, counted from 0, and the last rate gives the rate of each epoch. The logs
/// show it as `learning_rate`.
///
/// ```
/// use gradlet::train::callbacks::LearningRateScheduler;
/// let halve = LearningRateScheduler::new(|epoch, rate| if epoch < 10 { rate } else { rate / 2.0 });
/// ```
pub struct LearningRateScheduler<F>(F);

impl<F: FnMut(usize, f64) -> f64> LearningRateScheduler<F> {
    /// With this function.
    pub fn new(schedule: F) -> LearningRateScheduler<F> {
        LearningRateScheduler(schedule)
    }
}

impl<F: FnMut(usize, f64) -> f64> Callback for LearningRateScheduler<F> {
    fn on_epoch_begin(&mut self, model: &Model, epoch: usize) -> Result<()> {
        set_rate(model, (self.0)(epoch, rate(model)?))
    }

    fn on_epoch_end(&mut self, model: &Model, _: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        logs.set("learning_rate", rate(model)?);
        Ok(ControlFlow::Continue(()))
    }
}

/// Keras's `ReduceLROnPlateau`: makes the learning rate smaller when a number has not become better for some epochs. The logs show it
/// as `learning_rate`.
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
    /// A tenth of the rate, if `val_loss` was not better for 10 epochs.
    pub fn new() -> ReduceLROnPlateau {
        ReduceLROnPlateau::default()
    }

    /// What to watch.
    pub fn monitor(mut self, name: &str) -> ReduceLROnPlateau {
        self.monitor.name = name.into();
        self
    }

    /// What the rate is multiplied by: less than 1.
    pub fn factor(self, factor: f64) -> ReduceLROnPlateau {
        ReduceLROnPlateau { factor, ..self }
    }

    /// How many epochs to wait for a better one.
    pub fn patience(self, patience: usize) -> ReduceLROnPlateau {
        ReduceLROnPlateau { patience, ..self }
    }

    /// Whether it should be small or large.
    pub fn mode(mut self, mode: Mode) -> ReduceLROnPlateau {
        self.monitor.mode = mode;
        self
    }

    /// By how much it must be better to count.
    pub fn min_delta(mut self, min_delta: f64) -> ReduceLROnPlateau {
        self.monitor.min_delta = min_delta;
        self
    }

    /// How many epochs to rest after the rate was changed.
    pub fn cooldown(self, cooldown: usize) -> ReduceLROnPlateau {
        ReduceLROnPlateau { cooldown, ..self }
    }

    /// The smallest rate.
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
