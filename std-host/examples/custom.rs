//! A custom layer, loss and metric. Each implements one trait.
//!
//! `cargo run --release -p gradlet --example custom`

use gradlet::layers::{Layer, Module};
use gradlet::losses::Loss;
use gradlet::metrics::Metric;
use gradlet::optimizers::Sgd;
use gradlet::train::{Compile, Fit, Model, Verbose};
use gradlet::{DType, Eager, Error, Result, Scope, Shape, Tensor, Variable};
use std::io::Write;
use std::sync::Arc;

/// A layer that computes `x · w + b`.
#[derive(Module)]
struct LinearLayer {
    units: u32,
    w: Variable,
    b: Variable,
}

impl LinearLayer {
    fn new(units: u32) -> LinearLayer {
        LinearLayer { units, w: Variable::deferred("w"), b: Variable::deferred("b") }
    }
}

impl Layer for LinearLayer {
    fn name(&self) -> &str {
        "linear_layer"
    }

    /// Creates the variables. `input` is the shape of the first input.
    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let features = input.back(0).ok_or_else(|| Error::message("a scalar has no features"))?;
        self.w.create(scope, &Tensor::full(&scope.device(), 0.0f32, &[features, self.units])?)?;
        self.b.create(scope, &Tensor::full(&scope.device(), 0.0f32, &[self.units])?)
    }

    fn call(&self, scope: &dyn Scope, inputs: &Tensor) -> Result<Tensor> {
        inputs.matmul(&scope.read(&self.w)?)?.add(&scope.read(&self.b)?)
    }
}

/// Mean of the squared differences between predictions and labels.
struct MeanSquaredError;

impl Loss for MeanSquaredError {
    fn losses(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        y_pred.sub(y_true)?.square()?.mean(&[-1], false)
    }
}

/// Fraction of predictions whose largest element is at the index of the label.
#[derive(Module)]
struct SparseCategoricalAccuracy {
    total: Variable,
    count: Variable,
}

impl SparseCategoricalAccuracy {
    fn new() -> SparseCategoricalAccuracy {
        SparseCategoricalAccuracy { total: Variable::untrained("total"), count: Variable::untrained("count") }
    }

    /// Adds `value` to a counter variable, which starts at 0.
    fn add(scope: &dyn Scope, variable: &Variable, value: &Tensor) -> Result<()> {
        variable.create(scope, &Tensor::scalar(&scope.device(), 0i32))?;
        scope.assign(variable, &scope.read(variable)?.add(value)?)
    }
}

impl Metric for SparseCategoricalAccuracy {
    fn update_weighted(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor, _: Option<&Tensor>) -> Result<()> {
        let hits = y_true.equal(&y_pred.argmax(-1, DType::I32)?)?.cast(DType::I32)?;
        Self::add(scope, &self.total, &Tensor::scalar(&scope.device(), y_true.dims()[0] as i32))?;
        Self::add(scope, &self.count, &hits.sum(&[], false)?)
    }

    fn result(&self, scope: &dyn Scope) -> Result<Tensor> {
        scope.read(&self.count)?.cast(DType::F32)?.div(&scope.read(&self.total)?.cast(DType::F32)?)
    }
}

/// Trains the layer to fit a line, and measures the accuracy of two predictions.
pub fn run(out: &mut dyn Write) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let scope = Eager::with_seed(&gradlet::cpu(), 1);
    let device = scope.device();

    // The layer and the loss learn y = 2 x + 1.
    let x = Tensor::constant(&device, vec![[0.0f32], [1.0], [2.0], [3.0]])?;
    let y = Tensor::constant(&device, vec![[1.0f32], [3.0], [5.0], [7.0]])?;
    let layer = Arc::new(LinearLayer::new(1));
    let mut model = Model::new(&scope, layer.clone());
    model.compile(Compile::new(Sgd::new(0.1), MeanSquaredError))?;
    model.fit((&x, &y), Fit::new().epochs(200).verbose(Verbose::Silent))?;
    for (name, variable) in layer.named_variables() {
        writeln!(out, "{name}: {:.3}", scope.read(&variable)?.to_vec::<f32>()?[0])?;
    }

    let accuracy = SparseCategoricalAccuracy::new();
    let y_pred = Tensor::constant(&device, vec![[0.1f32, 0.9], [0.8, 0.2]])?;
    accuracy.update_state(&scope, &Tensor::constant(&device, vec![1, 1])?, &y_pred)?;
    accuracy.update_state(&scope, &Tensor::constant(&device, vec![1, 0])?, &y_pred)?;
    writeln!(out, "accuracy: {:.3}", accuracy.result(&scope)?.item::<f32>()?)?;
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    run(&mut std::io::stdout())
}
