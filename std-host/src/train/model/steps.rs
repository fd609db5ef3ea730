//! The steps of a compiled model. A step is traced once, and then runs for every batch.

use super::logs::Logs;
use super::source::Batch;
use crate::formats::proto::GraphDef;
use crate::tensorboard::profiler::graph_def;
use gradlet_core::layers::Layer;
use gradlet_core::losses::Loss;
use gradlet_core::metrics::{Mean, Metric};
use gradlet_core::optimizers::Optimizer;
use gradlet_core::scope::{Finite, observed};
use gradlet_core::{DType, Differentiate, Eager, Error, Function, Result, Scope, Tensor};
use std::sync::Arc;

/// Training configuration of a model: the arguments of Keras's `compile`.
///
/// ```
/// use gradlet::losses::SparseCategoricalCrossentropy;
/// use gradlet::metrics::SparseCategoricalAccuracy;
/// use gradlet::train::Compile;
/// use gradlet::optimizers::Adam;
/// let loss = SparseCategoricalCrossentropy::default().from_logits(true);
/// let compile = Compile::new(Adam::new(0.001), loss).metric("accuracy", SparseCategoricalAccuracy::default());
/// ```
pub struct Compile {
    pub(super) optimizer: Arc<dyn Optimizer>,
    loss: Arc<dyn Loss>,
    metrics: Vec<Named>,
    run_eagerly: bool,
}

/// A metric with its name. If `weighted` is true, it uses sample weights.
struct Named {
    name: String,
    metric: Arc<dyn Metric>,
    weighted: bool,
}

impl Compile {
    /// Creates a configuration with an optimizer and a loss, and without metrics.
    pub fn new(optimizer: impl Optimizer + 'static, loss: impl Loss + 'static) -> Compile {
        Compile { optimizer: Arc::new(optimizer), loss: Arc::new(loss), metrics: Vec::new(), run_eagerly: false }
    }

    /// Adds a metric, reported as `name`. It ignores sample weights.
    pub fn metric(self, name: &str, metric: impl Metric + 'static) -> Compile {
        self.with(Named { name: name.into(), metric: Arc::new(metric), weighted: false })
    }

    /// Adds a metric, reported as `name`. It uses sample weights.
    pub fn weighted_metric(self, name: &str, metric: impl Metric + 'static) -> Compile {
        self.with(Named { name: name.into(), metric: Arc::new(metric), weighted: true })
    }

    fn with(mut self, metric: Named) -> Compile {
        self.metrics.push(metric);
        self
    }

    /// Runs steps eagerly, op by op, instead of tracing and compiling them, if `run_eagerly` is true. The results are the same.
    pub fn run_eagerly(self, run_eagerly: bool) -> Compile {
        Compile { run_eagerly, ..self }
    }
}

/// Kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Train,
    Test,
}

/// A model with its training configuration.
struct Body {
    layer: Arc<dyn Layer>,
    compile: Compile,
    /// Mean of the losses of the batches, weighted by their numbers of samples.
    loss: Mean,
}

/// The inputs, the targets, and the weights of samples.
type Arguments = (Tensor, Tensor, Option<Tensor>);

impl Body {
    fn run(&self, kind: Kind, scope: &dyn Scope, (x, y, weights): &Arguments) -> Result<Vec<Tensor>> {
        let loss_of = |y_pred: &Tensor| {
            let loss = self.compile.loss.call_weighted(y, y_pred, weights.as_ref()).map_err(|error| error.context("the loss"))?;
            let scalar = loss.dims().is_empty();
            scalar
                .then(|| loss.clone())
                .ok_or_else(|| Error::message(format!("the loss must be a scalar for training, not {}", loss.tensor_type())))
        };
        let (y_pred, loss) = match kind {
            Kind::Train => {
                let tape = scope.tape();
                let y_pred = self.layer.apply(&tape, x)?;
                let loss = loss_of(&y_pred)?;
                let variables = self.layer.trainable_variables();
                let gradients = tape.gradient(&loss, &variables)?;
                if !variables.is_empty() {
                    self.compile.optimizer.apply_gradients(scope, &gradients).map_err(|error| error.context("the optimizer"))?;
                }
                (y_pred, loss)
            }
            Kind::Test => {
                let y_pred = self.layer.apply(scope, x)?;
                let loss = loss_of(&y_pred)?;
                (y_pred, loss)
            }
        };
        let samples = Tensor::scalar(&scope.device(), x.dims().first().map_or(1.0, |&samples| samples as f32));
        self.loss.update_state(scope, &loss, Some(&samples))?;
        let mut results = vec![self.loss.result(scope)?];
        for Named { name, metric, weighted } in &self.compile.metrics {
            let weights = weights.as_ref().filter(|_| *weighted);
            let updated = metric.update_weighted(scope, y, &y_pred, weights).and_then(|()| metric.result(scope)?.cast(DType::F32));
            results.push(updated.map_err(|error| error.context(format!("metric {name:?}")))?);
        }
        Ok(results)
    }
}

/// A compiled model.
pub(super) struct Compiled {
    body: Arc<Body>,
    train: Function<Arguments, Vec<Tensor>>,
    test: Function<Arguments, Vec<Tensor>>,
}

impl Compiled {
    /// Creates the step functions. Fails if two metrics have the same name.
    pub fn new(layer: &Arc<dyn Layer>, compile: Compile) -> Result<Compiled> {
        let names: Vec<&str> = std::iter::once("loss").chain(compile.metrics.iter().map(|metric| metric.name.as_str())).collect();
        if let Some(index) = (1..names.len()).find(|&index| names[..index].contains(&names[index])) {
            return Err(Error::message(format!("two metrics have the name {:?}", names[index])));
        }
        let body = Arc::new(Body { layer: layer.clone(), compile, loss: Mean::default() });
        let step = |kind, name| {
            let body = body.clone();
            Function::new(move |scope: &dyn Scope, arguments: Arguments| body.run(kind, scope, &arguments)).named(name)
        };
        Ok(Compiled { train: step(Kind::Train, "train_step"), test: step(Kind::Test, "test_step"), body })
    }

    pub fn optimizer(&self) -> &Arc<dyn Optimizer> {
        &self.body.compile.optimizer
    }

    /// Resets the state of the loss and of all metrics.
    pub fn reset(&self, scope: &Eager) -> Result<()> {
        self.body.loss.reset_state(scope)?;
        self.body.compile.metrics.iter().try_for_each(|named| named.metric.reset_state(scope))
    }

    /// Returns the graph of a training step for batches like this one, or `None` if steps run eagerly.
    pub fn train_graph(&self, scope: &Eager, batch: &Batch) -> Result<Option<GraphDef>> {
        if self.body.compile.run_eagerly {
            return Ok(None);
        }
        let arguments = batch.on(&scope.device())?;
        let concrete = self.train.concrete(&scope.with_training(true), &arguments)?;
        Ok(Some(graph_def(concrete.traced(), "CPU:0")))
    }

    /// Runs a step on `batch`. Returns the loss and the metrics of all batches since the last [`reset`](Compiled::reset). With
    /// `check`, the step runs eagerly and fails at the first number that is not finite.
    pub fn run(&self, kind: Kind, scope: &Eager, batch: &Batch, check: bool) -> Result<Logs> {
        batch.samples()?;
        let scope = scope.with_training(kind == Kind::Train);
        let arguments = batch.on(&scope.device())?;
        let function = if kind == Kind::Train { &self.train } else { &self.test };
        let results = match (check, self.body.compile.run_eagerly) {
            (true, _) => self.body.run(kind, &observed(&scope, Finite::new()), &arguments),
            (false, true) => self.body.run(kind, &scope, &arguments),
            (false, false) => function.call(&scope, arguments),
        };
        let results = results.map_err(|error| located(error, batch))?;
        let names = std::iter::once("loss").chain(self.body.compile.metrics.iter().map(|metric| metric.name.as_str()));
        let entry = |(name, result): (&str, &Tensor)| Ok((name.to_string(), f64::from(result.item::<f32>()?)));
        Ok(Logs::sorted(names.zip(&results).map(entry).collect::<Result<_>>()?))
    }
}

/// Adds the number of the sample to an error about a label out of range.
fn located(error: Error, batch: &Batch) -> Error {
    let &Error::IndexOutOfRange { position, .. } = error.root() else { return error };
    let samples = batch.samples.as_ref().filter(|samples| batch.y.shape().elements() == Some(samples.len()));
    match samples.and_then(|samples| samples.get(position as usize)) {
        Some(sample) => error.context(format!("sample {sample}")),
        None => error,
    }
}
