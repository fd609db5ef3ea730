//! The command `gradlet export`.

use crate::firmware::{Cpu, c_file, write_c};
use crate::{Model, print};
use anyhow::{Context, Result};
use clap::Args;
use gradlet::Eager;
use gradlet::artifact::describe::Description;
use gradlet::artifact::{export, firmware};
use gradlet::io::weights;
use gradlet::io::write_whole;
use std::path::PathBuf;
use std::sync::Arc;

/// Export a model as one artifact that a firmware can run and train further
///
/// The same weights and options produce the same bytes. Without --weights, the initial weights depend on the seed.
#[derive(Args)]
#[command(after_help = "Examples:\n  gradlet export cnn --weights cnn.safetensors --output cnn.grdl --rust model.rs\n  \
                        gradlet export mlp:64-32-10 --signatures infer,train --output mlp.grdl\n  \
                        gradlet export cnn --weights cnn.safetensors --train last:2 --output cnn.grdl")]
pub struct Export {
    #[command(flatten)]
    model: Model,
    /// File with the weights, as saved by `gradlet train`
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// File for the artifact
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Also write the firmware's kernels, arena sizes, names, indices and shapes, as Rust
    #[arg(long, value_name = "FILE")]
    rust: Option<PathBuf>,
    /// Processor whose kernels the Rust names
    #[arg(long, value_enum, default_value_t, requires = "rust")]
    cpu: Cpu,
    /// Also write them and the artifact as C: a source file whose name ends with .c, and the header beside it
    #[arg(long, value_name = "FILE", value_parser = c_file)]
    c: Option<PathBuf>,
    /// Number of samples per call of each signature
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Learning rate of the training signatures (SGD)
    #[arg(long, default_value_t = 0.01)]
    rate: f32,
    /// Signatures to export; `save` and `restore` are always exported together
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_values = export::SIGNATURES, value_parser = export::ALL_SIGNATURES)]
    signatures: Vec<String>,
    /// Layers that `train` trains: names, patterns as in conv2d*, or last:2 for the last two [default: all]
    ///
    /// The other layers are frozen: their weights stay in flash. `gradlet inspect` shows the names of the layers
    #[arg(long, value_delimiter = ',', value_name = "LAYERS")]
    train: Vec<String>,
    /// Leave out the checks that make a training step refuse inputs and losses that are infinite or NaN
    #[arg(long)]
    unchecked: bool,
    /// Keep a second copy of the variables in RAM, so that a training step that fails or is interrupted changes nothing
    #[arg(long)]
    keep_copy: bool,
}

impl Export {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let scope = Eager::with_seed(&gradlet::portable_cpu(), self.model.seed);
        let spec = &self.model.model;
        let model = Arc::new(spec.build(&scope)?);
        if let Some(path) = &self.weights {
            weights::load(&scope, &*model, path)?;
        }
        let options = export::Options {
            batch: self.batch,
            learning_rate: self.rate,
            signatures: self.signatures.clone(),
            train: self.train.clone(),
            finite_steps: !self.unchecked,
            keep_copy: self.keep_copy,
        };
        let bytes = export::artifact(&scope, &model, spec, &options).with_context(|| format!("cannot export {spec}"))?;
        let source = match &self.rust {
            Some(path) => Some((path, self.cpu.source(&bytes, &self.command())?)),
            None => None,
        };
        write_whole(&self.output, &bytes)?;
        if let Some((path, source)) = source {
            write_whole(path, source.as_bytes())?;
        }
        if let Some(path) = &self.c {
            write_c(path, &bytes, &self.command())?;
        }
        if quiet { Ok(()) } else { print(&self.summary(&bytes)?) }
    }

    /// Returns the command that made the file, without paths, so that it is the same for the same options.
    fn command(&self) -> String {
        let train = if self.train.is_empty() { String::new() } else { format!(" --train {}", self.train.join(",")) };
        format!("gradlet export {} --signatures {} --batch {}{train}", self.model.model, self.signatures.join(","), self.batch)
    }

    fn summary(&self, bytes: &[u8]) -> Result<String> {
        let description = Description::read(bytes)?;
        let mut text = format!("{}: {} B\n", self.output.display(), description.length);
        for signature in &description.signatures {
            text += &format!("  {:<11} {:>9} B of arena if loaded alone", signature.name, signature.arena_bytes);
            if signature.copy_bytes > 0 {
                text += &format!(", {} B of it for the second copy", signature.copy_bytes);
            }
            text.push('\n');
        }
        let names: Vec<&str> = description.signatures.iter().map(|signature| signature.name.as_str()).collect();
        text += &format!("  {:<11} {:>9} B of arena\n", "together", firmware::arena_bytes(bytes, &names)?);
        Ok(text)
    }
}
