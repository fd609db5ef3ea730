//! Results of training: numbers by name.

/// Numbers by name, such as `loss` and `val_accuracy`, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logs(Vec<(String, f64)>);

impl Logs {
    /// Creates logs from entries, sorted by name.
    pub(super) fn sorted(mut entries: Vec<(String, f64)>) -> Logs {
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Logs(entries)
    }

    /// Returns the number with this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Sets the number with this name. A new name is added at the end.
    pub fn set(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.into(), value)),
        }
    }

    /// Returns the names and numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// The logs of every epoch, as returned by `fit`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Each epoch, counted from 0, with its final logs.
    pub epochs: Vec<(usize, Logs)>,
    /// Reason for which a callback stopped the training, as the callback returns it from
    /// [`stop_reason`](crate::train::Callback::stop_reason).
    pub stop_reason: Option<String>,
}

impl History {
    /// Returns the numbers with this name, one for each epoch that has it.
    pub fn get(&self, name: &str) -> Vec<f64> {
        self.epochs.iter().filter_map(|(_, logs)| logs.get(name)).collect()
    }

    /// Returns the logs of the last epoch.
    pub fn last(&self) -> Option<&Logs> {
        self.epochs.last().map(|(_, logs)| logs)
    }
}
