//! The TensorFlow handbook's convolutional network, trained step by step: compiled by a `Function`, and eagerly without one.
//!
//! `cargo run --release -p gradlet --example cnn_function -- [BATCHES]`

/// The model.
#[allow(dead_code)]
#[path = "cnn.rs"]
mod cnn;

use cnn::Cnn;
use gradlet::datasets::Digits;
use gradlet::layers::{Layer, Module};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Differentiate, Eager, Function, Print, Result, Scope, Tensor};
use std::error::Error;
use std::fmt::Arguments;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const BATCH_SIZE: usize = 50;
const LEARNING_RATE: f32 = 0.001;

/// A function that prints text.
pub type Out = Arc<dyn Fn(Arguments<'_>) + Send + Sync>;

/// A model and its optimizer.
struct Training {
    model: Cnn,
    optimizer: Adam,
}

impl Training {
    fn train_one_step(&self, scope: &dyn Scope, x: &Tensor, y: &Tensor) -> Result<()> {
        let tape = scope.tape();
        let y_pred = self.model.apply(&tape, x)?;
        let loss = SparseCategoricalCrossentropy::default().call(y, &y_pred)?;
        tape.print("loss {}", &[&loss])?;
        let grads = tape.gradient(&loss, &self.model.trainable_variables())?;
        self.optimizer.apply_gradients(scope, &grads)
    }
}

/// Trains two equal models, one with a `Function`, one eagerly, and prints the time of each. They take turns, so that other programs on the
/// machine slow both alike.
pub fn run(digits: &Digits, num_batches: usize, out: &Out) -> Result<()> {
    let sink = out.clone();
    let device = gradlet::cpu().printing(move |text| sink(text));
    let training = || Arc::new(Training { model: Cnn::default(), optimizer: Adam::new(LEARNING_RATE) });
    let scopes = [(); 2].map(|()| Eager::with_seed(&device, 1));
    let (own, eager) = (training(), training());
    let train_one_step = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| own.train_one_step(scope, &x, &y));
    let (mut with, mut without) = (0.0, 0.0);
    for batch_index in 0..num_batches {
        let first = batch_index * BATCH_SIZE;
        let indices: Vec<usize> = (first..first + BATCH_SIZE).map(|index| index % digits.len()).collect();
        let (x, y) = digits.batch(&device, &indices, &[28, 28, 1])?;
        let start = Instant::now();
        train_one_step.call(&scopes[0], (x.clone(), y.clone()))?;
        with += start.elapsed().as_secs_f64();
        let start = Instant::now();
        eager.train_one_step(&scopes[1], &x, &y)?;
        without += start.elapsed().as_secs_f64();
    }
    out(format_args!("{num_batches} batches with Function: {with:.1} s\n"));
    out(format_args!("{num_batches} batches without: {without:.1} s\n"));
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let num_batches = std::env::args().nth(1).map_or(Ok(400), |batches| batches.parse())?;
    let digits = Digits::load(Path::new("data/mnist10k"), "train")?;
    let out: Out = Arc::new(|text| print!("{text}"));
    Ok(run(&digits, num_batches, &out)?)
}
