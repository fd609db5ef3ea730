//! The handbook's convolutional network on digits, trained with a dtype policy of Keras: `float32`, `mixed_float16` or `mixed_bfloat16`.
//!
//! `cargo run --release -p gradlet --example mixed_precision -- [POLICY] [EPOCHS] [SEED]`

use gradlet::datasets::{Digits, digits};
use gradlet::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, Padding, Sequential};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::metrics::SparseCategoricalAccuracy;
use gradlet::optimizers::Adam;
use gradlet::train::{Compile, Evaluate, Fit, Model, Verbose};
use gradlet::{DTypePolicy, Eager, Result, Scope};
use std::error::Error;
use std::path::Path;

/// Returns a network that maps images of digits to logits. All layers compute in the types of the policy, except the last one: the loss
/// needs logits of f32. Convolutions have `filters` and twice as many filters, and the hidden layer has `units` units.
pub fn network(policy: DTypePolicy, filters: u32, units: u32) -> impl Layer {
    let conv = |filters| Conv2D::new(filters, [5, 5]).padding(Padding::Same).activation(Activation::Relu);
    Sequential::new()
        .with(conv(filters))
        .with(MaxPool2D::new([2, 2]))
        .with(conv(2 * filters))
        .with(MaxPool2D::new([2, 2]))
        .with(Flatten)
        .with(Dense::new(units).activation(Activation::Relu))
        .with(Dense::new(10).dtype(DTypePolicy::Float32))
        .dtype(policy)
}

/// Trains `layer` on the digits `train`. Returns the model, and its accuracy on the digits `test`.
pub fn accuracy(scope: &Eager, layer: impl Layer + 'static, [train, test]: [&Digits; 2], epochs: usize) -> Result<(Model, f64)> {
    let mut model = Model::new(scope, layer);
    let loss = SparseCategoricalCrossentropy::default().from_logits(true);
    // With `mixed_float16`, this wraps the optimizer in a `LossScaleOptimizer`.
    model.compile(Compile::new(Adam::new(0.001), loss).metric("accuracy", SparseCategoricalAccuracy::default()))?;
    let device = scope.device();
    let ((x, y), (test_x, test_y)) = (train.tensors(&device, &[28, 28, 1])?, test.tensors(&device, &[28, 28, 1])?);
    model.fit((&x, &y), Fit::new().epochs(epochs).batch_size(50).verbose(Verbose::Silent))?;
    let logs = model.evaluate((&test_x, &test_y), Evaluate::new().batch_size(50).verbose(Verbose::Silent))?;
    Ok((model, logs.get("accuracy").unwrap_or_default()))
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let policy: DTypePolicy = arguments.next().map_or(Ok(DTypePolicy::MixedFloat16), |policy| policy.parse())?;
    let epochs = arguments.next().map_or(Ok(4), |epochs| epochs.parse())?;
    let seed = arguments.next().map_or(Ok(1), |seed| seed.parse())?;
    let (train, test) = digits::load(Path::new("data/mnist10k"))?;
    let scope = Eager::with_seed(&gradlet::cpu(), seed);
    let (model, accuracy) = accuracy(&scope, network(policy, 32, 1024), [&train, &test], epochs)?;
    println!("{}", model.summary()?);
    println!("{policy}: test accuracy {:.2} %", 100.0 * accuracy);
    for variable in model.optimizer()?.variables().iter().filter(|variable| variable.name() == "dynamic_scale") {
        println!("the loss is scaled by {}", scope.read(variable)?.item::<f32>()?);
    }
    Ok(())
}
