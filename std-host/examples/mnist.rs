//! The handbook's program that trains on digits, saves its model as it goes, and tests the last one saved.
//!
//! `cargo run --release -p gradlet --example mnist -- --mode=train --num_epochs=1 --batch_size=50 --learning_rate=0.001`,
//! then `… -- --mode=test`.

/// The model.
#[allow(dead_code)]
#[path = "mlp.rs"]
pub mod mlp;

use clap::{Parser, ValueEnum};
use gradlet::layers::{Layer, Module};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Digits, Eager, Model, Record, Scope, weights};
use mlp::{Mlp, PICTURE, get_batch};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Learn digits, or tell them apart.
#[derive(Parser)]
#[command(rename_all = "snake_case")]
pub struct Arguments {
    /// train or test
    #[arg(long, value_enum, default_value = "train")]
    pub mode: Mode,
    /// How often to go through all digits
    #[arg(long, default_value_t = 1)]
    pub num_epochs: usize,
    /// The digits of a step
    #[arg(long, default_value_t = 50)]
    pub batch_size: usize,
    /// How far a step goes
    #[arg(long, default_value_t = 0.001)]
    pub learning_rate: f32,
    /// Where the digits are
    #[arg(long, default_value = "data/mnist10k")]
    pub data: PathBuf,
    /// Where models are saved
    #[arg(long, default_value = "save")]
    pub save: PathBuf,
}

/// What to do.
#[derive(Clone, Copy, ValueEnum)]
pub enum Mode {
    /// Learn digits.
    Train,
    /// Test the model that was saved last.
    Test,
}

/// Does what the arguments say.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    match arguments.mode {
        Mode::Train => train(arguments, out),
        Mode::Test => test(arguments, out),
    }
}

/// Where the model is saved for the `number`-th time.
fn saved(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("model-{number}.safetensors"))
}

fn train(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let scope = Eager::with_seed(&gradlet::cpu(), 1);
    let digits = Digits::load(&arguments.data, "train")?;
    let model = Mlp::default();
    let optimizer = Adam::new(arguments.learning_rate);
    std::fs::create_dir_all(&arguments.save)?;
    for batch_index in 1..=digits.len() / arguments.batch_size * arguments.num_epochs {
        let (x, y) = get_batch(&scope, &digits, arguments.batch_size)?;
        let tape = scope.tape();
        let y_pred = model.apply(&tape, &x)?;
        let loss = SparseCategoricalCrossentropy::default().call(&y, &y_pred)?;
        writeln!(out, "batch {batch_index}: loss {:.6}", loss.item::<f32>()?)?;
        let grads = tape.gradient(&loss, &model.trainable_variables())?;
        optimizer.apply_gradients(&scope, &grads)?;
        if batch_index % 100 == 0 {
            let path = saved(&arguments.save, batch_index / 100);
            weights::save(&scope, &model, "mlp", &path)?;
            writeln!(out, "model saved to {}", path.display())?;
        }
    }
    Ok(())
}

fn test(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let scope = Eager::new(&gradlet::cpu());
    let digits = Digits::load(&arguments.data, "t10k")?;
    let model = Model::new(&scope, Mlp::default());
    model.build(PICTURE)?;
    let last = (1..).map(|number| saved(&arguments.save, number)).take_while(|path| path.exists()).last();
    model.load_weights(last.ok_or("there is no saved model: train first")?)?;
    let (x, y) = digits.tensors(&scope.device(), PICTURE)?;
    let y_pred = model.predict(&x)?.argmax(-1, y.dtype())?;
    let right = y_pred.to_vec::<i32>()?.iter().zip(y.to_vec::<i32>()?).filter(|(pred, label)| *pred == label).count();
    writeln!(out, "test accuracy: {:.6}", right as f64 / digits.len() as f64)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&Arguments::parse(), &mut std::io::stdout())
}
