//! The number that a callback monitors.

use super::{Logs, invalid};
use gradlet_core::Result;

/// Direction in which a monitored number improves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Determined by the name of the number. Smaller is better for losses and errors. Larger is better for accuracies, AUC,
    /// precision and recall.
    #[default]
    Auto,
    /// Smaller numbers are better.
    Min,
    /// Larger numbers are better.
    Max,
}

/// A number in the logs, and the criterion for its improvement.
#[derive(Clone, Debug)]
pub(super) struct Monitor {
    pub name: String,
    pub mode: Mode,
    pub min_delta: f64,
}

impl Monitor {
    pub fn new(name: &str, min_delta: f64) -> Monitor {
        Monitor { name: name.into(), mode: Mode::Auto, min_delta }
    }

    /// Returns the monitored number from the logs. If it is missing, prints a message to stderr and returns `None`. The message
    /// begins with `callback`, the name of the callback.
    pub fn value(&self, callback: &str, logs: &Logs) -> Option<f64> {
        let value = logs.get(&self.name);
        if value.is_none() {
            let names: Vec<&str> = logs.iter().map(|(name, _)| name).collect();
            eprintln!("{callback}: the logs have no {:?} to monitor, only {}", self.name, names.join(", "));
        }
        value
    }

    /// True if `value` is better than `reference` by more than `min_delta`, or if there is no `reference`.
    ///
    /// Compares in f32, as Keras does. Fails if the mode is `Auto` and the name does not determine the direction.
    pub fn is_better(&self, value: f64, reference: Option<f64>) -> Result<bool> {
        let larger = self.larger()?;
        let Some(reference) = reference else { return Ok(true) };
        let delta = self.min_delta.abs();
        Ok(if larger { (value - delta) as f32 > reference as f32 } else { ((value + delta) as f32) < reference as f32 })
    }

    /// True if larger numbers are better.
    fn larger(&self) -> Result<bool> {
        let name = self.name.strip_prefix("val_").unwrap_or(&self.name).to_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        match self.mode {
            Mode::Min => Ok(false),
            Mode::Max => Ok(true),
            Mode::Auto if says(&["loss", "error", "mse", "mae", "entropy"]) => Ok(false),
            Mode::Auto if says(&["acc", "auc", "precision", "recall"]) => Ok(true),
            Mode::Auto => Err(invalid(format!("the name {:?} does not determine the direction of improvement: set a mode", self.name))),
        }
    }
}
