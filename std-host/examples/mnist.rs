//! The TensorFlow handbook's program that trains on digits, saves its model during training, and tests the last saved model.
//!
//! `cargo run --release -p gradlet --example mnist -- --mode=train --num_epochs=1 --batch_size=50 --learning_rate=0.001`,
//! then `… -- --mode=test`.

/// The model.
#[allow(dead_code)]
#[path = "mlp.rs"]
pub mod mlp;

use clap::{Parser, ValueEnum};
use gradlet::checkpoint::{Checkpoint, latest_checkpoint};
use gradlet::datasets::Digits;
use gradlet::layers::{Layer, Module};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Differentiate, Eager, Scope, Tensor};
use mlp::{Mlp, PICTURE, get_batch};
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

/// Train a model on digits, or test it
#[derive(Parser)]
#[command(rename_all = "snake_case")]
pub struct Arguments {
    /// train or test
    #[arg(long, value_enum, default_value = "train")]
    pub mode: Mode,
    /// Number of epochs
    #[arg(long, default_value_t = 1)]
    pub num_epochs: usize,
    /// Number of digits in a batch
    #[arg(long, default_value_t = 50)]
    pub batch_size: usize,
    /// Learning rate of Adam
    #[arg(long, default_value_t = 0.001)]
    pub learning_rate: f32,
    /// Folder of the MNIST files
    #[arg(long, default_value = "data/mnist10k")]
    pub data: PathBuf,
    /// Folder for the saved models
    #[arg(long, default_value = "save")]
    pub save: PathBuf,
}

/// The task of a run.
#[derive(Clone, Copy, ValueEnum)]
pub enum Mode {
    /// Train a model and save it
    Train,
    /// Test the model that was saved last
    Test,
}

/// Number of batches between two saves.
pub const SAVES_AFTER: usize = 100;

/// Trains or tests the model, depending on the mode in `arguments`.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    match arguments.mode {
        Mode::Train => train(arguments, out, &mut |_| Ok(())),
        Mode::Test => test(arguments, out),
    }
}

/// Trains the model and saves it once every [`SAVES_AFTER`] batches. Calls `saved` after each save.
pub fn train(arguments: &Arguments, out: &mut dyn Write, saved: &mut Saved<'_>) -> Result<(), Box<dyn Error>> {
    let scope = Eager::with_seed(&gradlet::cpu(), 1);
    let digits = Digits::load(&arguments.data, "train")?;
    let model = Mlp::default();
    let optimizer = Adam::new(arguments.learning_rate);
    let num_batches = digits.len() / arguments.batch_size * arguments.num_epochs;
    let checkpoint = Checkpoint::new().with("myAwesomeModel", &model);
    for batch_index in 1..=num_batches {
        step(&scope, &model, &optimizer, &get_batch(&scope, &digits, arguments.batch_size)?, batch_index, out)?;
        if batch_index % SAVES_AFTER == 0 {
            let path = checkpoint.save(arguments.save.join("model.ckpt"))?;
            writeln!(out, "model saved to {}", path.display())?;
            saved(&model)?;
        }
    }
    Ok(())
}

/// A function that receives each saved model.
pub type Saved<'a> = dyn FnMut(&Mlp) -> Result<(), Box<dyn Error>> + 'a;

/// Does one training step on a batch.
pub fn step(
    scope: &Eager,
    model: &Mlp,
    optimizer: &Adam,
    (x, y): &(Tensor, Tensor),
    batch_index: usize,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let tape = scope.tape();
    let y_pred = model.apply(&tape, x)?;
    let loss = SparseCategoricalCrossentropy::default().call(y, &y_pred)?;
    writeln!(out, "batch {batch_index}: loss {:.6}", loss.item::<f32>()?)?;
    let grads = tape.gradient(&loss, &model.trainable_variables())?;
    optimizer.apply_gradients(scope, &grads)?;
    Ok(())
}

/// Tests the model that was saved last.
pub fn test(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let digits = Digits::load(&arguments.data, "t10k")?;
    let model_to_be_restored = Mlp::default();
    let checkpoint = Checkpoint::new().with("myAwesomeModel", &model_to_be_restored);
    let latest = latest_checkpoint(&arguments.save)?.ok_or("there is no saved model: train first")?;
    checkpoint.restore(latest)?.expect_partial();
    writeln!(out, "test accuracy: {:.6}", accuracy(&model_to_be_restored, &digits)?)?;
    Ok(())
}

/// Returns the fraction of digits that the model classifies correctly.
pub fn accuracy(model: &Mlp, digits: &Digits) -> Result<f64, Box<dyn Error>> {
    let scope = Eager::new(&gradlet::cpu());
    let (x, y) = digits.tensors(&scope.device(), PICTURE)?;
    let y_pred = model.apply(&scope, &x)?.argmax(-1, y.dtype())?;
    let right = y_pred.to_vec::<i32>()?.iter().zip(y.to_vec::<i32>()?).filter(|(pred, label)| *pred == label).count();
    Ok(right as f64 / digits.len() as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&Arguments::parse(), &mut std::io::stdout())
}
