//! The TensorFlow handbook's multilayer perceptron on digits, with a custom model and a custom training loop.
//!
//! `cargo run --release -p gradlet --example mlp`

use gradlet::datasets::{Digits, digits};
use gradlet::layers::{Activation, Dense, Flatten, Layer, Module};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::metrics::{Metric, SparseCategoricalAccuracy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Differentiate, Eager, Result, Scope, Tensor};
use std::error::Error;
use std::io::Write;
use std::path::Path;

/// A model that maps images of digits to class probabilities.
#[derive(Module)]
pub struct Mlp {
    flatten: Flatten,
    dense1: Dense,
    dense2: Dense,
}

impl Default for Mlp {
    fn default() -> Mlp {
        Mlp { flatten: Flatten, dense1: Dense::new(100).activation(Activation::Relu), dense2: Dense::new(10) }
    }
}

impl Layer for Mlp {
    fn name(&self) -> &str {
        "mlp"
    }

    fn call(&self, scope: &dyn Scope, inputs: &Tensor) -> Result<Tensor> {
        let x = self.flatten.apply(scope, inputs)?; // [batch, 784]
        let x = self.dense1.apply(scope, &x)?; // [batch, 100]
        let x = self.dense2.apply(scope, &x)?; // [batch, 10]
        x.softmax(-1)
    }
}

/// Shape of one input image of the model.
pub const PICTURE: &[u32] = &[28, 28, 1];
const BATCH_SIZE: usize = 50;
const LEARNING_RATE: f32 = 0.001;

/// Returns a batch of random digits, and their labels.
pub fn get_batch(scope: &Eager, digits: &Digits, batch_size: usize) -> Result<(Tensor, Tensor)> {
    let numbers = scope.next_stream()?.uniform(batch_size);
    let indices: Vec<usize> = numbers.iter().map(|number| (number * digits.len() as f32) as usize).collect();
    digits.batch(&scope.device(), &indices, PICTURE)
}

/// Trains for `num_epochs` epochs, and prints the test accuracy.
pub fn run(data: &Path, num_epochs: usize, out: &mut dyn Write) -> std::result::Result<(), Box<dyn Error>> {
    let scope = Eager::with_seed(&gradlet::cpu(), 1);
    let (train, test) = digits::load(data)?;
    let model = Mlp::default();
    let optimizer = Adam::new(LEARNING_RATE);

    for batch_index in 0..train.len() / BATCH_SIZE * num_epochs {
        let (x, y) = get_batch(&scope, &train, BATCH_SIZE)?;
        let tape = scope.tape();
        let y_pred = model.apply(&tape, &x)?;
        let loss = SparseCategoricalCrossentropy::default().call(&y, &y_pred)?;
        writeln!(out, "batch {batch_index}: loss {:.6}", loss.item::<f32>()?)?;
        let grads = tape.gradient(&loss, &model.trainable_variables())?;
        optimizer.apply_gradients(&scope, &grads)?;
    }

    let accuracy = SparseCategoricalAccuracy::default();
    let all: Vec<usize> = (0..test.len()).collect();
    for indices in all.chunks_exact(BATCH_SIZE) {
        let (x, y) = test.batch(&scope.device(), indices, PICTURE)?;
        accuracy.update_state(&scope, &y, &model.apply(&scope, &x)?)?;
    }
    writeln!(out, "test accuracy: {:.6}", accuracy.result(&scope)?.item::<f32>()?)?;
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    run(Path::new("data/mnist10k"), 5, &mut std::io::stdout())
}
