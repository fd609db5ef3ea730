//! `gradlet train`.

use crate::{Data, Model, print};
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use gradlet::optimizers::{Adam, Optimizer, Sgd};
use gradlet::progress::Bar;
use gradlet::{Eager, training, weights, writable};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Train a model on digits, and save its weights
///
/// Prints the loss and the accuracy on the test digits. The same seed gives the same weights, bit for bit.
#[derive(Args)]
#[command(after_help = "Example:\n  gradlet train cnn --data data/mnist10k --weights cnn.safetensors")]
pub struct Train {
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    data: Data,
    /// How often to go through all digits
    #[arg(long, default_value_t = 6, value_name = "N")]
    epochs: usize,
    /// The digits of a step
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// How gradients change weights
    #[arg(long, value_enum, default_value = "adam")]
    optimizer: Rule,
    /// The learning rate [default: 0.001 for adam, 0.01 for sgd]
    #[arg(long, value_name = "RATE")]
    rate: Option<f32>,
    /// Start from the weights in this file
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Save the weights to this file, as safetensors
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Rule {
    Adam,
    Sgd,
}

impl Train {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let start = Instant::now();
        // Better to fail now than after an hour of training.
        self.weights.iter().try_for_each(|path| writable(path))?;
        let (train, test) = self.data.load()?;
        ensure!(!train.is_empty() && !test.is_empty(), "there are no digits to train on, or none to test on");
        let scope = Eager::with_seed(&gradlet::cpu(), self.model.seed);
        let spec = &self.model.model;
        let model = Arc::new(spec.build(&scope)?);
        if let Some(path) = &self.from {
            weights::load(&scope, &*model, path)?;
        }
        let options = training::Options { epochs: self.epochs, batch: self.batch as usize };
        let mut bar = Bar::new(quiet);
        let report = &mut |status: &_| bar.report(status);
        let result = match self.epochs {
            0 => training::evaluate(&scope, &model, &test, &spec.input())?,
            _ => training::fit(&scope, &model, self.optimizer(), (&train, &test), &spec.input(), options, report)?,
        };
        if let Some(path) = &self.weights {
            weights::save(&scope, &*model, &spec.to_string(), path)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        print(&format!(
            "{spec}: accuracy {:.2} %, loss {:.4} on {} test digits, {seconds:.1} s\n",
            result.accuracy * 100.0,
            result.loss,
            test.len()
        ))
    }

    fn optimizer(&self) -> Arc<dyn Optimizer> {
        match self.optimizer {
            Rule::Adam => Arc::new(Adam::new(self.rate.unwrap_or(0.001))),
            Rule::Sgd => Arc::new(Sgd::new(self.rate.unwrap_or(0.01))),
        }
    }
}
