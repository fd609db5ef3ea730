//! The TensorFlow handbook's program that keeps its last three checkpoints, and numbers them by batch.
//!
//! `cargo run --release -p gradlet --example checkpoint_manager -- --mode=train --num_epochs=8`, then `… -- --mode=test`.

/// The handbook's program that saves checkpoints without a manager.
#[allow(dead_code)]
#[path = "mnist.rs"]
pub mod mnist;

use clap::Parser;
use gradlet::Eager;
use gradlet::checkpoint::{Checkpoint, CheckpointManager};
use gradlet::datasets::Digits;
use gradlet::optimizers::Adam;
use mnist::mlp::{Mlp, get_batch};
use mnist::{Arguments, Mode, SAVES_AFTER, Saved, step, test};
use std::error::Error;
use std::io::Write;

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
    let mut manager = CheckpointManager::new(checkpoint, &arguments.save, 3)?;
    for batch_index in 1..num_batches {
        step(&scope, &model, &optimizer, &get_batch(&scope, &digits, arguments.batch_size)?, batch_index, out)?;
        if batch_index % SAVES_AFTER == 0 {
            let path = manager.save_with_checkpoint_number(batch_index as u64)?;
            writeln!(out, "model saved to {}", path.display())?;
            saved(&model)?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&Arguments::parse(), &mut std::io::stdout())
}
