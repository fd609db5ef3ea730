//! Training and evaluating classifiers on digits.

use crate::digits::Digits;
use gradlet_core::layers::{Layer, Module, Sequential};
use gradlet_core::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet_core::optimizers::Optimizer;
use gradlet_core::{DType, Eager, Function, Record, Result, Scope, Tensor, Variable};
use std::sync::Arc;

/// A traced step: from inputs `x` and labels `y` (i32) to the mean loss.
pub type Step = Function<(Tensor, Tensor), Tensor>;

/// A training step of `model`, which gives logits: forward, softmax cross-entropy, backward, and the optimizer's update of
/// `variables`. It is traced once for each shape of `x`.
///
/// ```
/// use gradlet::optimizers::Sgd;
/// use gradlet::{Eager, ModelSpec, Scope, Tensor, layers::Module, training};
/// use std::sync::Arc;
/// let scope = Eager::new(&gradlet::cpu());
/// let model = Arc::new(ModelSpec::build(&"mlp:4-2".parse()?, &scope)?);
/// let step = training::step(&model, Arc::new(Sgd::new(0.5)), model.trainable_variables());
/// let (x, y) = (Tensor::full(&scope.device(), 1.0f32, &[3, 4])?, Tensor::full(&scope.device(), 1i32, &[3])?);
/// let first = step.call(&scope, (x.clone(), y.clone()))?.item::<f32>()?;
/// let second = step.call(&scope, (x, y))?.item::<f32>()?;
/// assert!(second < first);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn step(model: &Arc<Sequential>, optimizer: Arc<dyn Optimizer>, variables: Vec<Variable>) -> Step {
    let model = model.clone();
    Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let (loss, _) = forward_backward(scope, &model, &*optimizer, &variables, &x, &y)?;
        Ok(loss)
    })
}

/// One step; gives the loss and the logits before it.
fn forward_backward(
    scope: &dyn Scope,
    model: &Sequential,
    optimizer: &dyn Optimizer,
    variables: &[Variable],
    x: &Tensor,
    y: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let tape = scope.tape();
    let logits = model.call(&tape, x)?;
    let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(y, &logits)?;
    let gradients = tape.gradient(&loss, variables)?;
    optimizer.apply_gradients(scope, &gradients)?;
    Ok((loss, logits))
}

/// How many of the largest logits are at the label.
fn hits(y: &Tensor, logits: &Tensor) -> Result<Tensor> {
    logits.argmax(-1, y.dtype())?.equal(y)?.cast(DType::F32)?.sum(&[], false)
}

/// How long and in which portions to train.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often to go through all digits.
    pub epochs: usize,
    /// The digits of a step; the last one of an epoch may have fewer.
    pub batch: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { epochs: 6, batch: 32 }
    }
}

/// The mean loss, and the share of digits whose largest logit is at their label.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// The mean softmax cross-entropy.
    pub loss: f64,
    /// From 0 to 1.
    pub accuracy: f64,
}

/// Where training stands: what [`fit`] reports after each step, and once more when an epoch is over.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// This epoch, from 1.
    pub epoch: usize,
    /// How many there will be.
    pub epochs: usize,
    /// The steps of this epoch so far.
    pub step: usize,
    /// How many it has.
    pub steps: usize,
    /// Over the digits trained on in this epoch, each at its time.
    pub train: Evaluation,
    /// On the digits to test on, once the epoch is over.
    pub test: Option<Evaluation>,
}

/// Sums over batches.
#[derive(Default)]
struct Sums {
    loss: f64,
    hits: f64,
    digits: usize,
}

impl Sums {
    /// Takes in a batch with this mean loss.
    fn add(&mut self, loss: &Tensor, hits: &Tensor, digits: usize) -> Result<()> {
        self.loss += f64::from(loss.item::<f32>()?) * digits as f64;
        self.hits += f64::from(hits.item::<f32>()?);
        self.digits += digits;
        Ok(())
    }

    fn means(&self) -> Evaluation {
        let digits = self.digits.max(1) as f64;
        Evaluation { loss: self.loss / digits, accuracy: self.hits / digits }
    }
}

/// Trains all of `model` on `train`, shuffled anew in each epoch by the scope's random numbers, and evaluates it on `test` after
/// each. `picture` is the shape of an input without the batch. Gives the last evaluation.
///
/// Fails where a picture does not fit `picture`, and where the model fails on it.
pub fn fit(
    scope: &Eager,
    model: &Arc<Sequential>,
    optimizer: Arc<dyn Optimizer>,
    (train, test): (&Digits, &Digits),
    picture: &[u32],
    options: Options,
    report: &mut dyn FnMut(&Status),
) -> Result<Evaluation> {
    let (device, batch) = (scope.device(), options.batch.max(1));
    let traced = model.clone();
    let step = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let (loss, logits) = forward_backward(scope, &traced, &*optimizer, &traced.trainable_variables(), &x, &y)?;
        Ok((loss, hits(&y, &logits)?))
    });
    let evaluate = evaluator(model);
    let mut last = Evaluation::default();
    for epoch in 1..=options.epochs {
        let order = train.shuffled(scope.next_stream()?);
        let mut sums = Sums::default();
        let steps = order.len().div_ceil(batch);
        let mut status = Status { epoch, epochs: options.epochs, step: 0, steps, train: last, test: None };
        for indices in order.chunks(batch) {
            let (loss, hits) = step.call(scope, train.batch(&device, indices, picture)?)?;
            sums.add(&loss, &hits, indices.len())?;
            status = Status { step: status.step + 1, train: sums.means(), ..status };
            report(&status);
        }
        last = evaluate_with(&evaluate, scope, test, picture)?;
        report(&Status { test: Some(last), ..status });
    }
    Ok(last)
}

type Evaluator = Function<(Tensor, Tensor), (Tensor, Tensor)>;

fn evaluator(model: &Arc<Sequential>) -> Evaluator {
    let model = model.clone();
    Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let logits = model.call(scope, &x)?;
        Ok((SparseCategoricalCrossentropy::default().from_logits(true).call(&y, &logits)?, hits(&y, &logits)?))
    })
}

fn evaluate_with(evaluate: &Evaluator, scope: &Eager, digits: &Digits, picture: &[u32]) -> Result<Evaluation> {
    let order: Vec<usize> = (0..digits.len()).collect();
    let mut sums = Sums::default();
    for indices in order.chunks(100) {
        let (loss, hits) = evaluate.call(scope, digits.batch(&scope.device(), indices, picture)?)?;
        sums.add(&loss, &hits, indices.len())?;
    }
    Ok(sums.means())
}

/// Loss and accuracy of `model` on `digits`. `picture` is the shape of an input without the batch.
pub fn evaluate(scope: &Eager, model: &Arc<Sequential>, digits: &Digits, picture: &[u32]) -> Result<Evaluation> {
    evaluate_with(&evaluator(model), scope, digits, picture)
}
