//! The loops of `fit` and `evaluate`.

use super::Model;
use super::callbacks::Callback;
use super::logs::{History, Logs};
use super::source::{Order, Pass, Source};
use super::steps::{Compiled, Kind, Results};
use crate::train::progress::{Progress, Verbose};
use gradlet_core::{Error, Result, Scope};
use std::ops::ControlFlow;

/// Options of [`Model::fit`], with Keras's names and defaults.
pub struct Fit<'a> {
    batch_size: Option<usize>,
    epochs: usize,
    verbose: Verbose,
    callbacks: Vec<Box<dyn Callback + 'a>>,
    validation_split: f64,
    validation_data: Option<Box<dyn Source + 'a>>,
    shuffle: bool,
    class_weight: Vec<(i64, f32)>,
    initial_epoch: usize,
    steps_per_epoch: Option<usize>,
    validation_steps: Option<usize>,
    validation_batch_size: Option<usize>,
    validation_freq: usize,
    check_numerics: bool,
}

impl Default for Fit<'_> {
    fn default() -> Self {
        Fit {
            batch_size: None,
            epochs: 1,
            verbose: Verbose::Auto,
            callbacks: Vec::new(),
            validation_split: 0.0,
            validation_data: None,
            shuffle: true,
            class_weight: Vec::new(),
            initial_epoch: 0,
            steps_per_epoch: None,
            validation_steps: None,
            validation_batch_size: None,
            validation_freq: 1,
            check_numerics: false,
        }
    }
}

impl<'a> Fit<'a> {
    /// Creates options for one epoch, in shuffled batches of 32.
    pub fn new() -> Fit<'a> {
        Fit::default()
    }

    /// Sets the number of samples per step. The last step of an epoch may have fewer. The default for arrays is 32.
    pub fn batch_size(self, batch_size: usize) -> Self {
        Fit { batch_size: Some(batch_size), ..self }
    }

    /// Sets the epoch at which training ends, counted from epoch 0. Without [`initial_epoch`](Fit::initial_epoch), this is the
    /// number of epochs.
    pub fn epochs(self, epochs: usize) -> Self {
        Fit { epochs, ..self }
    }

    /// Sets the style of the progress display.
    pub fn verbose(self, verbose: Verbose) -> Self {
        Fit { verbose, ..self }
    }

    /// Adds a callback. Callbacks are called in the order in which they were added.
    pub fn callback(mut self, callback: impl Callback + 'a) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Sets the fraction of the samples that is used for validation. These are the last samples in the data, before shuffling.
    pub fn validation_split(self, validation_split: f64) -> Self {
        Fit { validation_split, ..self }
    }

    /// Sets the data on which the model is evaluated at the end of each epoch, instead of a fraction of the training data.
    pub fn validation_data(self, data: impl Source + 'a) -> Self {
        Fit { validation_data: Some(Box::new(data)), ..self }
    }

    /// Shuffles the samples before each epoch, if `shuffle` is true (the default). The random numbers come from the model's scope.
    pub fn shuffle(self, shuffle: bool) -> Self {
        Fit { shuffle, ..self }
    }

    /// Sets the weights of classes in the loss. Classes that are not listed have the weight 1.
    pub fn class_weight(self, weights: &[(i64, f32)]) -> Self {
        Fit { class_weight: weights.to_vec(), ..self }
    }

    /// Sets the number of the first epoch, to continue an earlier training.
    pub fn initial_epoch(self, initial_epoch: usize) -> Self {
        Fit { initial_epoch, ..self }
    }

    /// Sets the maximum number of steps per epoch. The next epoch continues in the data where the previous one stopped.
    pub fn steps_per_epoch(self, steps: usize) -> Self {
        Fit { steps_per_epoch: Some(steps), ..self }
    }

    /// Sets the maximum number of batches for validation.
    pub fn validation_steps(self, steps: usize) -> Self {
        Fit { validation_steps: Some(steps), ..self }
    }

    /// Sets the number of samples per batch in validation. The default is the batch size of training.
    pub fn validation_batch_size(self, batch_size: usize) -> Self {
        Fit { validation_batch_size: Some(batch_size), ..self }
    }

    /// Validates once every `epochs` epochs.
    pub fn validation_freq(self, epochs: usize) -> Self {
        Fit { validation_freq: epochs, ..self }
    }

    /// Stops with an error at the first number that is NaN or infinite, if `check` is true. The error names the epoch, step, op and
    /// layer. Steps then run eagerly, which is slow.
    pub fn check_numerics(self, check: bool) -> Self {
        Fit { check_numerics: check, ..self }
    }
}

/// Options of [`Model::evaluate`], with Keras's names and defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evaluate {
    batch_size: Option<usize>,
    steps: Option<usize>,
    verbose: Verbose,
}

impl Evaluate {
    /// Creates options for all samples, in batches of 32.
    pub fn new() -> Evaluate {
        Evaluate::default()
    }

    /// Sets the number of samples per batch.
    pub fn batch_size(self, batch_size: usize) -> Evaluate {
        Evaluate { batch_size: Some(batch_size), ..self }
    }

    /// Sets the maximum number of batches.
    pub fn steps(self, steps: usize) -> Evaluate {
        Evaluate { steps: Some(steps), ..self }
    }

    /// Sets the style of the progress display.
    pub fn verbose(self, verbose: Verbose) -> Evaluate {
        Evaluate { verbose, ..self }
    }
}

impl Model {
    /// Trains the model for some epochs on `(&x, &y)`, `(&x, &y, &sample_weight)`, or another [`Source`] of batches.
    ///
    /// A training step is traced once for each batch size and then runs compiled, unless
    /// [`Compile::run_eagerly`](super::Compile::run_eagerly) is set. The same seed produces the same weights.
    ///
    /// Fails if the model is not compiled, if there are no samples, if the number of targets differs from that of the samples, if
    /// the data do not fit the model, or if a label is out of range.
    pub fn fit(&self, data: impl Source, mut options: Fit<'_>) -> Result<History> {
        let mut callbacks = std::mem::take(&mut options.callbacks);
        let halves = match options.validation_data {
            None if options.validation_split != 0.0 => Some(data.split(options.validation_split)?),
            _ => None,
        };
        let (train, validation): (&dyn Source, Option<&dyn Source>) = match &halves {
            Some((train, validation)) => (train, Some(validation)),
            None => (&data, options.validation_data.as_deref()),
        };
        Run { model: self, compiled: self.compiled()?, train, validation, options: &options, rest: None }.epochs(&mut callbacks)
    }

    /// Returns the loss and the metrics on `(&x, &y)`, `(&x, &y, &sample_weight)`, or another source of batches.
    ///
    /// Fails in the same cases as [`Model::fit`].
    pub fn evaluate(&self, data: impl Source, options: Evaluate) -> Result<Logs> {
        let steps = at_most(data.steps(options.batch_size)?, options.steps);
        let mut progress = Progress::new(options.verbose, steps);
        let logs = self.test(&data, options.batch_size, options.steps, &mut |step, results| progress.step(step, results))?;
        progress.finish(&logs);
        Ok(logs)
    }

    /// Evaluates the model on at most `steps` batches of `data`. After each batch, calls `report` with the number of batches so
    /// far and their results. Returns the logs of all of them.
    fn test(
        &self,
        data: &dyn Source,
        batch_size: Option<usize>,
        steps: Option<usize>,
        report: &mut dyn FnMut(usize, &Results<'_>) -> Result<()>,
    ) -> Result<Logs> {
        let compiled = self.compiled()?;
        compiled.reset(&self.scope)?;
        let mut last = None;
        for (index, batch) in data.pass(Order { batch_size, shuffle: None })?.take(steps.unwrap_or(usize::MAX)).enumerate() {
            let results = batch.and_then(|batch| {
                self.build_for(batch.x.tensor_type())?;
                let results = compiled.run(Kind::Test, &self.scope, &batch, false)?;
                report(index + 1, &results)?;
                Ok(results)
            });
            last = Some(results.map_err(|error| error.context(format!("evaluation step {}", index + 1)))?);
        }
        last.ok_or_else(no_batch)?.logs().cloned()
    }
}

/// Returns the number of steps of an epoch: the number of batches `all` or the maximum `limit`, whichever is smaller. Returns
/// `None` if neither is known.
fn at_most(all: Option<usize>, limit: Option<usize>) -> Option<usize> {
    all.into_iter().chain(limit).min()
}

fn no_batch() -> Error {
    Error::message("the data has no batches")
}

/// A call of `fit`.
struct Run<'a> {
    model: &'a Model,
    compiled: &'a Compiled,
    train: &'a dyn Source,
    validation: Option<&'a dyn Source>,
    options: &'a Fit<'a>,
    /// Batches of the current pass through the data with which the next epoch continues. `None` if the next epoch starts a new
    /// pass.
    rest: Option<Pass<'a>>,
}

type Callbacks<'a> = [Box<dyn Callback + 'a>];

impl<'a> Run<'a> {
    fn epochs(mut self, callbacks: &mut Callbacks<'_>) -> Result<History> {
        let (model, options) = (self.model, self.options);
        let mut pass = self.pass()?;
        if let Some(Ok(batch)) = pass.peek() {
            model.prepare(batch)?;
        }
        self.rest = Some(pass);
        let mut history = History::default();
        callbacks.iter_mut().try_for_each(|callback| callback.on_train_begin(model))?;
        for epoch in options.initial_epoch..options.epochs {
            let epoch_of = |error: Error| error.context(format!("epoch {}", epoch + 1));
            callbacks.iter_mut().try_for_each(|callback| callback.on_epoch_begin(model, epoch))?;
            let mut progress = Progress::new(options.verbose, at_most(self.train.steps(options.batch_size)?, options.steps_per_epoch));
            if epoch == options.initial_epoch && model.layer.trainable_variables().is_empty() {
                progress.message("warning: the model has no trainable variables, so training does not change it");
            }
            if options.epochs > 1 {
                progress.message(&format!("Epoch {}/{}", epoch + 1, options.epochs));
            }
            let (mut logs, mut flow) = self.epoch(callbacks, &mut progress).map_err(epoch_of)?;
            if let Some(data) = self.validation.filter(|_| (epoch + 1).is_multiple_of(options.validation_freq.max(1))) {
                let batch_size = options.validation_batch_size.or(options.batch_size);
                let validation = model.test(data, batch_size, options.validation_steps, &mut |_, _| Ok(())).map_err(epoch_of)?;
                validation.iter().for_each(|(name, value)| logs.set(&format!("val_{name}"), value));
            }
            for callback in callbacks.iter_mut() {
                flow = either(flow, callback.on_epoch_end(model, epoch, &mut logs)?);
            }
            if flow.is_break() {
                history.stop_reason = callbacks.iter().find_map(|callback| callback.stop_reason());
            }
            history.stop_reason.iter().for_each(|reason| progress.message(reason));
            progress.finish(&logs);
            history.epochs.push((epoch, logs));
            if flow.is_break() {
                break;
            }
        }
        self.compiled.optimizer().finalize_variable_values(&model.scope)?;
        callbacks.iter_mut().try_for_each(|callback| callback.on_train_end(model))?;
        Ok(history)
    }

    /// Runs the steps of an epoch. Returns the logs of the last step, and `Break` if a callback stops the training.
    fn epoch(&mut self, callbacks: &mut Callbacks<'_>, progress: &mut Progress) -> Result<(Logs, ControlFlow<()>)> {
        let (model, options) = (self.model, self.options);
        self.compiled.reset(&model.scope)?;
        let mut pass = match self.rest.take() {
            Some(pass) => pass,
            None => self.pass()?,
        };
        let mut last = None;
        let mut flow = ControlFlow::Continue(());
        for (step, batch) in pass.by_ref().take(options.steps_per_epoch.unwrap_or(usize::MAX)).enumerate() {
            let results = batch.and_then(|batch| {
                let batch = batch.class_weighted(&options.class_weight)?;
                callbacks.iter_mut().try_for_each(|callback| callback.on_batch_begin(model, step, &batch))?;
                let results = self.compiled.run(Kind::Train, &model.scope, &batch, options.check_numerics)?;
                progress.step(step + 1, &results)?;
                Ok(results)
            });
            let results = results.map_err(|error| error.context(format!("step {}", step + 1)))?;
            for callback in callbacks.iter_mut().filter(|callback| callback.reads_batches()) {
                flow = either(flow, callback.on_batch_end(model, step, results.logs()?)?);
            }
            last = Some(results);
            if flow.is_break() {
                break;
            }
        }
        if options.steps_per_epoch.is_some() && pass.peek().is_some() {
            self.rest = Some(pass);
        }
        Ok((last.ok_or_else(no_batch)?.logs()?.clone(), flow))
    }

    fn pass(&self) -> Result<Pass<'a>> {
        let shuffle = self.options.shuffle.then(|| self.model.scope.next_stream()).transpose()?;
        self.train.pass(Order { batch_size: self.options.batch_size, shuffle })
    }
}

/// Returns `Break` if one of the two is `Break`.
fn either(one: ControlFlow<()>, other: ControlFlow<()>) -> ControlFlow<()> {
    if one.is_break() { one } else { other }
}
