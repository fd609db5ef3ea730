//! The command `gradlet train`.

use crate::{Data, Model, print};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use gradlet::io::weights;
use gradlet::io::writable;
use gradlet::optimizers::{Adam, Sgd};
use gradlet::train::{Evaluate, Fit, Verbose};
use gradlet::{Eager, Scope, config, train};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Train a model on digits, and save its weights
///
/// Prints the loss and the accuracy on the test digits. The same seed produces the same weights on the same device, bit for bit.
#[derive(Args)]
#[command(after_help = "Example:\n  gradlet train cnn --data data/mnist10k --weights cnn.safetensors")]
pub struct Train {
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    data: Data,
    /// Number of passes over all digits
    #[arg(long, default_value_t = 6, value_name = "N")]
    epochs: usize,
    /// Number of digits per step
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Optimizer
    #[arg(long, value_enum, default_value = "adam")]
    optimizer: Rule,
    /// Learning rate [default: 0.001 for adam, 0.01 for sgd]
    #[arg(long, value_name = "RATE")]
    rate: Option<f32>,
    /// Device that trains, such as GPU:0 (`gradlet devices` lists them) [default: CPU:0]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// File with the initial weights
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// File for the weights, as safetensors; its name must end in .safetensors
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
        // A path that cannot be written should fail before the training, not after it.
        self.weights.iter().try_for_each(|path| writable(path).and_then(|()| weights::check_name(path)))?;
        let (train, test) = self.data.load()?;
        ensure!(!train.is_empty() && !test.is_empty(), "there are no digits for training, or none for testing");
        let named = |name: &String| config::context().device(name).context("`gradlet devices` lists the devices");
        let device = self.device.as_ref().map_or_else(|| Ok(gradlet::cpu()), named)?;
        let scope = Eager::with_seed(&device, self.model.seed);
        let spec = &self.model.model;
        let layers = Arc::new(spec.build(&scope)?);
        if let Some(path) = &self.from {
            weights::load(&scope, &*layers, path)?;
        }
        let model = match self.optimizer {
            Rule::Adam => train::classifier(&scope, layers.clone(), Adam::new(self.rate.unwrap_or(0.001))),
            Rule::Sgd => train::classifier(&scope, layers.clone(), Sgd::new(self.rate.unwrap_or(0.01))),
        }?;
        let [train, test] = [train.tensors(&scope.device(), &spec.input())?, test.tensors(&scope.device(), &spec.input())?];
        let verbose = if quiet { Verbose::Silent } else { Verbose::Auto };
        let fit = Fit::new().epochs(self.epochs).batch_size(self.batch as usize).verbose(verbose).validation_data((&test.0, &test.1));
        let history = model.fit((&train.0, &train.1), fit)?;
        let (prefix, logs) = match history.last() {
            Some(logs) => ("val_", logs.clone()),
            None => ("", model.evaluate((&test.0, &test.1), Evaluate::new().verbose(Verbose::Silent))?),
        };
        if let Some(path) = &self.weights {
            weights::save(&scope, &*layers, &spec.to_string(), path)?;
        }
        let result = |name| logs.get(&format!("{prefix}{name}")).unwrap_or(f64::NAN);
        print(&format!(
            "{spec}: accuracy {:.2} %, loss {:.4} on {} test digits, {:.1} s\n",
            result("accuracy") * 100.0,
            result("loss"),
            test.1.dims()[0],
            start.elapsed().as_secs_f64()
        ))
    }
}
