//! The TensorFlow handbook's program that traces training for TensorBoard: the graph of a step, and the time of each op.
//!
//! `cargo run --release -p gradlet --example trace -- [LOG_DIR] [BATCHES]`, then `tensorboard --logdir LOG_DIR`

/// The model.
#[allow(dead_code)]
#[path = "mlp.rs"]
mod mlp;

use gradlet::datasets::Digits;
use gradlet::layers::{Layer, Module};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Differentiate, Eager, Function, Result, Scope, Tensor, profiler, summary};
use mlp::Mlp;
use std::error::Error;
use std::path::{Path, PathBuf};

const BATCH_SIZE: usize = 50;
const LEARNING_RATE: f32 = 0.001;

/// Trains on `num_batches` batches, and writes to `log_dir`. Returns the path of the profile.
pub fn run(digits: &Digits, log_dir: &Path, num_batches: usize) -> std::result::Result<PathBuf, Box<dyn Error>> {
    let (model, optimizer) = (Mlp::default(), Adam::new(LEARNING_RATE));
    let train_one_step = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| -> Result<Tensor> {
        let tape = scope.tape();
        let y_pred = model.apply(&tape, &x)?;
        let loss = SparseCategoricalCrossentropy::default().call(&y, &y_pred)?;
        let grads = tape.gradient(&loss, &model.trainable_variables())?;
        optimizer.apply_gradients(scope, &grads)?;
        Ok(loss)
    })
    .named("train_one_step");

    let writer = summary::create_file_writer(log_dir)?;
    let trace = profiler::trace_on(&gradlet::cpu(), profiler::Options { graph: true, profiler: true });
    let scope = Eager::with_seed(trace.device(), 1);
    for batch_index in 0..num_batches {
        let (x, y) = mlp::get_batch(&scope, digits, BATCH_SIZE)?;
        let loss = train_one_step.call(&scope, (x, y))?;
        writer.scalar("loss", &loss, batch_index as i64)?;
    }
    let profile = trace.export("model_trace", 0, &writer)?.ok_or("the trace has no profile")?;
    writer.close()?;
    Ok(profile)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let log_dir = std::env::args().nth(1).unwrap_or("tensorboard".into());
    let num_batches = std::env::args().nth(2).map_or(Ok(20), |batches| batches.parse())?;
    let digits = Digits::load(Path::new("data/mnist10k"), "train")?;
    let profile = run(&digits, Path::new(&log_dir), num_batches)?;
    println!("profile: {}", profile.display());
    println!("tensorboard --logdir {log_dir}");
    Ok(())
}
