//! Checkpoints of a model during training.

use super::monitor::{Mode, Monitor};
use super::{Callback, Logs, Model, invalid};
use crate::checkpoint::{Checkpoint, State};
use crate::files::create_folder;
use crate::formats::weights::check_foreign;
use gradlet_core::Result;
use std::ops::ControlFlow;
use std::path::Path;

/// Keras's `ModelCheckpoint`: saves the model after each epoch or after a number of batches. It saves every time, or only if the
/// model improved.
///
/// The path determines the format. For a path that ends in `.safetensors`, only the weights are saved, by [`Model::save_weights`].
/// Any other path is the prefix of a [`Checkpoint`] of `model` and `optimizer`.
/// [`latest_checkpoint`](crate::checkpoint::latest_checkpoint) finds it. Endings of other formats, such as Keras's `.keras` and
/// `.weights.h5`, are an error at the start of training.
///
/// Names in braces are replaced by numbers: `{epoch}` by the number of the epoch and `{batch}` by that of the batch, both counted
/// from 1. Any other name is replaced by the number with that name in the logs. A format in Python's notation may follow a colon:
/// `{epoch:02d}-{val_loss:.2f}`.
///
/// ```
/// use gradlet::checkpoint::{Checkpoint, latest_checkpoint};
/// use gradlet::layers::{Dense, Sequential};
/// use gradlet::losses::MeanSquaredError;
/// use gradlet::train::callbacks::ModelCheckpoint;
/// use gradlet::train::{Compile, Fit, Model};
/// use gradlet::optimizers::Adam;
/// use gradlet::{Eager, Scope, Tensor};
///
/// let scope = Eager::with_seed(&gradlet::cpu(), 1);
/// let new_model = || {
///     let mut model = Model::new(&scope, Sequential::new().with(Dense::new(1)));
///     model.compile(Compile::new(Adam::new(0.1), MeanSquaredError::default())).map(|()| model)
/// };
/// let (x, y) = (Tensor::random_uniform(&scope, &[8, 2])?, Tensor::random_uniform(&scope, &[8, 1])?);
/// let folder = tempfile::tempdir()?;
/// let model = new_model()?;
/// model.fit((&x, &y), Fit::new().epochs(3).callback(ModelCheckpoint::new(folder.path().join("model-{epoch}"))))?;
///
/// let latest = latest_checkpoint(folder.path())?.unwrap();
/// assert!(latest.ends_with("model-3"));
/// let restored = new_model()?;
/// Checkpoint::new().with("model", &restored).with("optimizer", restored.optimizer()?).read(&latest)?;
/// assert_eq!(restored.predict(&x)?.to_vec::<f32>()?, model.predict(&x)?.to_vec::<f32>()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ModelCheckpoint {
    filepath: String,
    monitor: Monitor,
    save_best_only: bool,
    save_freq: Option<usize>,
    best: Option<f64>,
    epoch: usize,
    batches: usize,
}

impl ModelCheckpoint {
    /// Creates a callback that saves to `filepath` after each epoch.
    pub fn new(filepath: impl AsRef<Path>) -> ModelCheckpoint {
        ModelCheckpoint {
            filepath: filepath.as_ref().to_string_lossy().into(),
            monitor: Monitor::new("val_loss", 0.0),
            save_best_only: false,
            save_freq: None,
            best: None,
            epoch: 0,
            batches: 0,
        }
    }

    /// Sets the name of the number that must improve, for [`ModelCheckpoint::save_best_only`].
    pub fn monitor(mut self, name: &str) -> ModelCheckpoint {
        self.monitor.name = name.into();
        self
    }

    /// Sets the direction in which the number improves.
    pub fn mode(mut self, mode: Mode) -> ModelCheckpoint {
        self.monitor.mode = mode;
        self
    }

    /// Saves only models that are better than all previous ones, if `save_best_only` is true.
    pub fn save_best_only(self, save_best_only: bool) -> ModelCheckpoint {
        ModelCheckpoint { save_best_only, ..self }
    }

    /// Saves once every `batches` batches, instead of after each epoch.
    pub fn save_freq(self, batches: usize) -> ModelCheckpoint {
        ModelCheckpoint { save_freq: Some(batches), ..self }
    }

    /// Sets a value that the first saved model must be better than, for [`ModelCheckpoint::save_best_only`].
    pub fn initial_value_threshold(self, threshold: f64) -> ModelCheckpoint {
        ModelCheckpoint { best: Some(threshold), ..self }
    }

    /// Returns the best value of the monitored number so far, or `None` if there is none yet.
    pub fn best(&self) -> Option<f64> {
        self.best
    }

    fn save(&mut self, model: &Model, batch: Option<usize>, logs: &Logs) -> Result<()> {
        if self.save_best_only
            && let Some(value) = self.monitor.value("ModelCheckpoint", logs)
        {
            if !self.monitor.is_better(value, self.best)? {
                return Ok(());
            }
            self.best = Some(value);
        }
        let path = filled(&self.filepath, &|name| match name {
            "epoch" => Some(self.epoch as f64 + 1.0),
            "batch" if logs.get("batch").is_none() => batch.map(|batch| batch as f64 + 1.0),
            name => logs.get(name),
        })?;
        let path = Path::new(&path);
        let folder = path.parent().unwrap_or(Path::new(""));
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            create_folder(folder)?;
            return Ok(model.save_weights(path)?);
        }
        let path = Checkpoint::new().with("model", model).with("optimizer", model.optimizer()?).write(path)?;
        Ok(State::update(folder, &path, std::slice::from_ref(&path))?)
    }
}

impl Callback for ModelCheckpoint {
    fn on_train_begin(&mut self, _: &Model) -> Result<()> {
        Ok(check_foreign(Path::new(&self.filepath))?)
    }

    fn on_epoch_begin(&mut self, _: &Model, epoch: usize) -> Result<()> {
        self.epoch = epoch;
        Ok(())
    }

    fn reads_batches(&self) -> bool {
        self.save_freq.is_some()
    }

    fn on_batch_end(&mut self, model: &Model, step: usize, logs: &Logs) -> Result<ControlFlow<()>> {
        self.batches += 1;
        if self.save_freq.is_some_and(|batches| self.batches >= batches) {
            self.batches = 0;
            self.save(model, Some(step), logs)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(&mut self, model: &Model, _: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        if self.save_freq.is_none() {
            self.save(model, None, logs)?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Replaces names in braces by numbers. Fails if there is no number with a name, or if a brace or a format is invalid.
fn filled(pattern: &str, number: &dyn Fn(&str) -> Option<f64>) -> Result<String> {
    let wrong = |text: String| invalid(format!("the path {pattern:?}: {text}"));
    let (mut path, mut rest) = (String::new(), pattern);
    while let Some(at) = rest.find(['{', '}']) {
        path += &rest[..at];
        let brace = &rest[at..at + 1];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            path += brace;
            rest = after;
            continue;
        }
        let inside = if brace == "{" { rest.split_once('}') } else { None };
        let (field, after) = inside.ok_or_else(|| wrong(format!("{brace:?} has no matching brace; double it for a literal brace")))?;
        let (name, format) = field.split_once(':').unwrap_or((field, ""));
        let value = number(name).ok_or_else(|| wrong(format!("there is no number {name:?}")))?;
        let integer = ["batch", "epoch"].contains(&name);
        path += &written(value, integer, format)
            .ok_or_else(|| wrong(format!("{format:?} is not a format for {name}: use one such as 02d or .3f")))?;
        rest = after;
    }
    Ok(path + rest)
}

/// Formats a number in Python's notation, `[0][width][.digits][d|f]`. Returns `None` if the format is invalid.
fn written(value: f64, integer: bool, format: &str) -> Option<String> {
    let (format, kind) = match format.chars().last() {
        Some(kind @ ('d' | 'f')) => (&format[..format.len() - 1], kind),
        _ => (format, ' '),
    };
    let (width, digits) = format.split_once('.').map_or((format, None), |(width, digits)| (width, Some(digits)));
    let zeros = width.starts_with('0');
    let width: usize = if width.is_empty() { 0 } else { width.parse().ok().filter(|width| *width <= 64)? };
    let digits: Option<usize> = digits.map(|digits| digits.parse().ok().filter(|digits| *digits <= 64).ok_or(())).transpose().ok()?;
    let text = match (kind, digits) {
        ('d' | ' ', None) if integer => format!("{value:.0}"),
        ('d', _) => return None,
        ('f', digits) => format!("{value:.*}", digits.unwrap_or(6)),
        (_, Some(_)) => return None,
        _ => crate::values::numbers::python(value),
    };
    let (sign, digits) = text.split_at(usize::from(text.starts_with('-')));
    let rest = width.saturating_sub(sign.len());
    Some(if zeros { format!("{sign}{digits:0>rest$}") } else { format!("{text:>width$}") })
}

#[cfg(test)]
mod tests {
    use super::filled;

    #[test]
    fn paths_are_python_s() {
        let number = |name: &str| match name {
            "epoch" => Some(7.0),
            "loss" => Some(0.12345),
            "one" => Some(1.0),
            "below" => Some(-1.5),
            _ => None,
        };
        let filled = |pattern| filled(pattern, &number).map_err(|error| error.to_string());
        assert_eq!(filled("a/{epoch:03d}-{loss:.2f}.safetensors").unwrap(), "a/007-0.12.safetensors");
        assert_eq!(filled("{epoch}-{loss}-{one}-{{x}}-{epoch:2}-{loss:f}").unwrap(), "7-0.12345-1.0-{x}- 7-0.123450");
        assert_eq!(filled("{below:07.2f}|{below:7.2f}").unwrap(), "-001.50|  -1.50");
        assert_eq!(filled("plain").unwrap(), "plain");
        assert_eq!(filled("{acc}").unwrap_err(), "the path \"{acc}\": there is no number \"acc\"");
        assert_eq!(filled("{loss:x}").unwrap_err(), "the path \"{loss:x}\": \"x\" is not a format for loss: use one such as 02d or .3f");
        assert!(filled("{epoch").unwrap_err().contains("no matching brace"));
        assert!(filled("epoch}").unwrap_err().contains("no matching brace"));
        assert!(filled("{loss:.999999999999f}").is_err() && filled("{loss:d}").is_err());
    }
}
