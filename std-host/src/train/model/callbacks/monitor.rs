//! What callbacks watch.

use super::{Logs, invalid};
use gradlet_core::Result;

/// Which numbers are better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Told by the name: losses and errors should be small; accuracies, AUC, precision and recall large.
    #[default]
    Auto,
    /// Smaller ones.
    Min,
    /// Larger ones.
    Max,
}

/// A number in the logs, and when it counts as better.
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

    /// The number. Says on stderr if there is none.
    pub fn value(&self, callback: &str, logs: &Logs) -> Option<f64> {
        let value = logs.get(&self.name);
        if value.is_none() {
            let names: Vec<&str> = logs.iter().map(|(name, _)| name).collect();
            eprintln!("{callback}: there is no {:?} to watch; there are {}", self.name, names.join(", "));
        }
        value
    }

    /// Whether `value` is better than `reference` by more than `min_delta`; anything is better than nothing.
    ///
    /// As Keras, compares in f32. Fails where the mode is not told by the name.
    pub fn is_better(&self, value: f64, reference: Option<f64>) -> Result<bool> {
        let larger = self.larger()?;
        let Some(reference) = reference else { return Ok(true) };
        let delta = self.min_delta.abs();
        Ok(if larger { (value - delta) as f32 > reference as f32 } else { ((value + delta) as f32) < reference as f32 })
    }

    /// Whether larger numbers are better.
    fn larger(&self) -> Result<bool> {
        let name = self.name.strip_prefix("val_").unwrap_or(&self.name).to_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        match self.mode {
            Mode::Min => Ok(false),
            Mode::Max => Ok(true),
            Mode::Auto if says(&["loss", "error", "mse", "mae", "entropy"]) => Ok(false),
            Mode::Auto if says(&["acc", "auc", "precision", "recall"]) => Ok(true),
            Mode::Auto => Err(invalid(format!("whether {:?} should be small or large is not told by its name: give a mode", self.name))),
        }
    }
}
