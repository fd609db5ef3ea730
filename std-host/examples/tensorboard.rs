//! The TensorFlow handbook's multilayer perceptron on digits. TensorBoard shows its loss during training.
//!
//! `cargo run --release -p gradlet --example tensorboard -- tensorboard` writes to the folder `tensorboard`.
//! `tensorboard --logdir=./tensorboard` shows it.

/// The model.
#[allow(dead_code)]
#[path = "mlp.rs"]
pub mod mlp;

use gradlet::datasets::digits;
use gradlet::layers::{Layer, Module};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Differentiate, Eager, Summarize, summary};
use mlp::{Mlp, get_batch};
use std::error::Error;
use std::path::Path;

const BATCH_SIZE: usize = 50;
const LEARNING_RATE: f32 = 0.001;

/// Trains for `num_epochs` epochs, and writes the losses to `log_dir` as a run for TensorBoard.
pub fn run(data: &Path, log_dir: &Path, num_epochs: usize) -> Result<(), Box<dyn Error>> {
    let summary_writer = summary::create_file_writer(log_dir)?;
    let scope = Eager::with_seed(&summary_writer.as_default(&gradlet::cpu()), 1);
    let (train, _) = digits::load(data)?;
    let model = Mlp::default();
    let optimizer = Adam::new(LEARNING_RATE);

    for batch_index in 0..train.len() / BATCH_SIZE * num_epochs {
        let (x, y) = get_batch(&scope, &train, BATCH_SIZE)?;
        let tape = scope.tape();
        let y_pred = model.apply(&tape, &x)?;
        let loss = SparseCategoricalCrossentropy::default().call(&y, &y_pred)?;
        scope.scalar("loss", &loss, batch_index as i64)?;
        let grads = tape.gradient(&loss, &model.trainable_variables())?;
        optimizer.apply_gradients(&scope, &grads)?;
    }
    Ok(summary_writer.close()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let log_dir = std::env::args().nth(1).unwrap_or("tensorboard".into());
    run(Path::new("data/mnist10k"), Path::new(&log_dir), 5)
}
