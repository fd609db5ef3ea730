//! The TensorFlow handbook's convolutional network on digits, with `compile`, `fit` and `evaluate`.
//!
//! `cargo run --release -p gradlet --example cnn -- [EPOCHS] [SEED]`

use gradlet::datasets::{Digits, digits};
use gradlet::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, Padding};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::metrics::SparseCategoricalAccuracy;
use gradlet::optimizers::Adam;
use gradlet::train::{Compile, Evaluate, Fit, Model, Verbose};
use gradlet::{Eager, Result, Scope, Tensor};
use std::error::Error;
use std::io::Write;
use std::path::Path;

/// A model that maps images of digits to class probabilities.
#[derive(Module)]
pub struct Cnn {
    conv1: Conv2D,
    pool1: MaxPool2D,
    conv2: Conv2D,
    pool2: MaxPool2D,
    flatten: Flatten,
    dense1: Dense,
    dense2: Dense,
}

impl Default for Cnn {
    fn default() -> Cnn {
        let conv = |filters| Conv2D::new(filters, [5, 5]).padding(Padding::Same).activation(Activation::Relu);
        let pool = || MaxPool2D::new([2, 2]);
        let (dense1, dense2) = (Dense::new(1024).activation(Activation::Relu), Dense::new(10));
        Cnn { conv1: conv(32), pool1: pool(), conv2: conv(64), pool2: pool(), flatten: Flatten, dense1, dense2 }
    }
}

impl Layer for Cnn {
    fn name(&self) -> &str {
        "cnn"
    }

    fn call(&self, scope: &dyn Scope, inputs: &Tensor) -> Result<Tensor> {
        let x = self.conv1.apply(scope, inputs)?; // [batch, 28, 28, 32]
        let x = self.pool1.apply(scope, &x)?; // [batch, 14, 14, 32]
        let x = self.conv2.apply(scope, &x)?; // [batch, 14, 14, 64]
        let x = self.pool2.apply(scope, &x)?; // [batch, 7, 7, 64]
        let x = self.flatten.apply(scope, &x)?; // [batch, 3136]
        let x = self.dense1.apply(scope, &x)?; // [batch, 1024]
        let x = self.dense2.apply(scope, &x)?; // [batch, 10]
        x.softmax(-1)
    }
}

/// Trains the network on the digits `train`, evaluates it on the digits `test`, and prints the results.
pub fn run((train, test): (&Digits, &Digits), epochs: usize, seed: u64, out: &mut dyn Write) -> std::result::Result<(), Box<dyn Error>> {
    let scope = Eager::with_seed(&gradlet::cpu(), seed);
    let mut model = Model::new(&scope, Cnn::default());
    model.compile(
        Compile::new(Adam::new(0.001), SparseCategoricalCrossentropy::default())
            .metric("sparse_categorical_accuracy", SparseCategoricalAccuracy::default()),
    )?;
    model.build(&[28, 28, 1])?;
    write!(out, "{}", model.summary()?)?;

    let (x, y) = train.tensors(&scope.device(), &[28, 28, 1])?;
    model.fit((&x, &y), Fit::new().epochs(epochs).batch_size(50))?;
    let (x, y) = test.tensors(&scope.device(), &[28, 28, 1])?;
    let result = model.evaluate((&x, &y), Evaluate::new().batch_size(50).verbose(Verbose::Silent))?;
    for (name, value) in result.iter() {
        writeln!(out, "test {name}: {value:.6}")?;
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let epochs = arguments.next().map_or(Ok(4), |epochs| epochs.parse())?;
    let seed = arguments.next().map_or(Ok(1), |seed| seed.parse())?;
    let (train, test) = digits::load(Path::new("data/mnist10k"))?;
    run((&train, &test), epochs, seed, &mut std::io::stdout())
}
