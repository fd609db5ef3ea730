//! The steps of a compiled model. A step is traced once, and then runs for every batch.

use super::logs::Logs;
use super::source::Batch;
use crate::distribute::{Runner, with_runner};
use crate::formats::proto::GraphDef;
use crate::tensorboard::profiler::graph_def;
use gradlet_core::layers::Layer;
use gradlet_core::losses::{Loss, Reduction};
use gradlet_core::metrics::{Mean, Metric};
use gradlet_core::optimizers::{LossScaleOptimizer, Optimizer};
use gradlet_core::scope::{Finite, observed};
use gradlet_core::{DType, DTypePolicy, Differentiate, Eager, Error, Function, Result, Scope, Tensor};
use std::cell::OnceCell;
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
    auto_scale_loss: bool,
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
        let (optimizer, loss) = (Arc::new(optimizer), Arc::new(loss));
        Compile { optimizer, loss, metrics: Vec::new(), run_eagerly: false, auto_scale_loss: true }
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

    /// Sets whether the optimizer of a model with the policy [`MixedFloat16`](gradlet_core::DTypePolicy::MixedFloat16) becomes a
    /// [`LossScaleOptimizer`], unless it is one already (default true). The policy is that of the model, set by
    /// [`Layer::dtype`](gradlet_core::layers::Layer::dtype).
    pub fn auto_scale_loss(self, auto_scale_loss: bool) -> Compile {
        Compile { auto_scale_loss, ..self }
    }

    /// Returns the configuration for a model with this policy.
    fn suited(self, policy: Option<DTypePolicy>) -> Compile {
        let scales = self.auto_scale_loss && policy == Some(DTypePolicy::MixedFloat16) && !self.optimizer.scales_loss();
        if scales { Compile { optimizer: Arc::new(LossScaleOptimizer::new(self.optimizer)), ..self } } else { self }
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

/// The inputs, the targets, the weights of samples, and the share of a replica.
type Arguments = (Tensor, Tensor, Option<Tensor>, Option<Share>);

/// The share that a replica has in a batch: the factor of its loss, which is its fraction of the samples, and the weights 0 of samples that
/// only stand in for a part without any. The replica then takes part in all sums, and adds nothing.
type Share = (Tensor, Option<Tensor>);

impl Body {
    /// Runs a step. Returns the loss and the metrics so far. A replica returns nothing, because it knows only its own.
    fn run(&self, kind: Kind, scope: &dyn Scope, (x, y, weights, share): &Arguments) -> Result<Vec<Tensor>> {
        let absent = share.as_ref().and_then(|(_, absent)| absent.as_ref());
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
                let shared = share.as_ref().map(|(factor, _)| loss.mul(factor)).transpose()?;
                let scaled = self.compile.optimizer.scale_loss(scope, shared.as_ref().unwrap_or(&loss))?;
                let gradients = tape.gradient(&scaled, &variables)?;
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
        let count = if absent.is_some() { 0.0 } else { x.dims().first().map_or(1.0, |&samples| samples as f32) };
        self.loss.update_state(scope, &loss, Some(&Tensor::scalar(&scope.device(), count)))?;
        for Named { name, metric, weighted } in &self.compile.metrics {
            let weights = absent.or(weights.as_ref().filter(|_| *weighted));
            let updated = metric.update_weighted(scope, y, &y_pred, weights);
            updated.map_err(|error| error.context(format!("metric {name:?}")))?;
        }
        if share.is_some() { Ok(Vec::new()) } else { self.results(scope) }
    }

    /// Returns the loss and the metrics so far.
    fn results(&self, scope: &dyn Scope) -> Result<Vec<Tensor>> {
        let mut results = vec![self.loss.result(scope)?];
        for Named { name, metric, .. } in &self.compile.metrics {
            let result = metric.result(scope).and_then(|result| result.cast(DType::F32));
            results.push(result.map_err(|error| error.context(format!("metric {name:?}")))?);
        }
        Ok(results)
    }

    /// Divides a batch among replicas, each part with its share. A replica without samples gets the first one to stand in.
    fn parts(&self, runner: &Runner, batch: &Batch) -> Result<Vec<Arguments>> {
        let rows = batch.x.dims().first().copied().unwrap_or(0);
        let parts = runner.split(&(batch.x.clone(), batch.y.clone(), batch.sample_weight.clone()))?.into_values();
        let sums = matches!(self.compile.loss.reduction(), Reduction::Sum);
        let part = |(x, y, weights): (Tensor, Tensor, Option<Tensor>)| {
            let (own, device) = (x.dims().first().copied().unwrap_or(0), x.device()?);
            let factor = if sums { 1.0 } else { own as f32 / rows as f32 };
            if own > 0 {
                return Ok((x, y, weights, Some((Tensor::scalar(&device, factor), None))));
            }
            let first = |tensor: &Tensor| first_row(tensor)?.to(&device);
            let share = (Tensor::scalar(&device, 0.0f32), Some(Tensor::full(&device, 0.0f32, &[1])?));
            Ok((first(&batch.x)?, first(&batch.y)?, batch.sample_weight.as_ref().map(first).transpose()?, Some(share)))
        };
        parts.into_iter().map(part).collect()
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
        let body = Arc::new(Body { layer: layer.clone(), compile: compile.suited(layer.dtype_policy()), loss: Mean::default() });
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
        let (x, y, weights) = batch.on(&scope.device())?;
        let arguments = (x, y, weights, None);
        let concrete = self.train.concrete(&scope.with_training(true), &arguments)?;
        Ok(Some(graph_def(concrete.traced(), "CPU:0")))
    }

    /// Runs a step on `batch`. Returns the loss and the metrics of all batches since the last [`reset`](Compiled::reset). With
    /// `check`, the step runs eagerly and fails at the first number that is not finite.
    pub fn run(&self, kind: Kind, scope: &Eager, batch: &Batch, check: bool) -> Result<Results<'_>> {
        batch.samples()?;
        let scope = scope.with_training(kind == Kind::Train);
        let distributed = with_runner(&scope, |runner| self.run_replicas(runner, kind, &scope, batch, check));
        let results = match distributed {
            Some(results) => results?,
            None => {
                let (x, y, weights) = batch.on(&scope.device())?;
                self.run_one(kind, &scope, (x, y, weights, None), check).map_err(|error| located(error, batch, 0))?
            }
        };
        Ok(Results { compiled: self, results, logs: OnceCell::new() })
    }

    /// Runs a step in a scope, that of a replica or one without replicas.
    fn run_one(&self, kind: Kind, scope: &dyn Scope, arguments: Arguments, check: bool) -> Result<Vec<Tensor>> {
        let function = if kind == Kind::Train { &self.train } else { &self.test };
        match (check, self.body.compile.run_eagerly) {
            (true, _) => self.body.run(kind, &observed(scope, Finite::new()), &arguments),
            (false, true) => self.body.run(kind, scope, &arguments),
            (false, false) => function.call(scope, arguments),
        }
    }

    /// Runs a step in all replicas, and returns the loss and the metrics of all of them.
    fn run_replicas(&self, runner: &Runner, kind: Kind, scope: &dyn Scope, batch: &Batch, check: bool) -> Result<Vec<Tensor>> {
        let (parts, training) = (self.body.parts(runner, batch)?, scope.training());
        runner.run(|replica| {
            let arguments = parts.get(replica.replica_id()).cloned().ok_or(Error::Internal)?;
            let before: u32 = parts.iter().take(replica.replica_id()).filter_map(|(x, ..)| x.dims().first()).sum();
            let results = self.run_one(kind, &replica.with_training(training), arguments, check);
            results.map_err(|error| located(error, batch, before))
        })?;
        self.body.results(scope)
    }
}

/// Results of a step, which a GPU may still compute.
pub(crate) struct Results<'c> {
    compiled: &'c Compiled,
    results: Vec<Tensor>,
    logs: OnceCell<Logs>,
}

impl Results<'_> {
    /// Waits for the results, and returns them.
    pub fn logs(&self) -> Result<&Logs> {
        if let Some(logs) = self.logs.get() {
            return Ok(logs);
        }
        let names = std::iter::once("loss").chain(self.compiled.body.compile.metrics.iter().map(|metric| metric.name.as_str()));
        let entry = |(name, result): (&str, &Tensor)| Ok((name.to_string(), f64::from(result.item::<f32>()?)));
        let logs = Logs::sorted(names.zip(&self.results).map(entry).collect::<Result<_>>()?);
        Ok(self.logs.get_or_init(|| logs))
    }
}

/// Returns the first row of a tensor.
fn first_row(tensor: &Tensor) -> Result<Tensor> {
    let mut size: Vec<i64> = vec![-1; tensor.dims().len()];
    size.first_mut().into_iter().for_each(|rows| *rows = 1);
    tensor.slice(&vec![0; size.len()], &size)
}

/// Adds the number of the sample to an error about a label out of range in the part of a batch that begins after `before` samples.
fn located(error: Error, batch: &Batch, before: u32) -> Error {
    let &Error::IndexOutOfRange { position, .. } = error.root() else { return error };
    let samples = batch.samples.as_ref().filter(|samples| batch.y.shape().elements() == Some(samples.len()));
    match samples.and_then(|samples| samples.get((before + position) as usize)) {
        Some(sample) => error.context(format!("sample {sample}")),
        None => error,
    }
}
