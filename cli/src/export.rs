//! `gradlet export`.

use crate::{Model, print};
use anyhow::{Context, Result};
use clap::Args;
use gradlet::Eager;
use gradlet::artifact::{export, firmware};
use gradlet::artifact::describe::Description;
use gradlet::io::write_whole;
use gradlet::io::weights;
use std::path::PathBuf;
use std::sync::Arc;

/// Write a model as one artifact that a firmware runs, and goes on training
///
/// The same weights and options give the same bytes. Without --weights, the model has the first weights of its seed.
#[derive(Args)]
#[command(after_help = "Examples:\n  gradlet export cnn --weights cnn.safetensors --output cnn.grdl --rust model.rs\n  \
                        gradlet export mlp:64-32-10 --signatures infer,train --output mlp.grdl")]
pub struct Export {
    #[command(flatten)]
    model: Model,
    /// The weights, as `gradlet train` saves them
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Where to write the artifact
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Also write the firmware's kernel list and arena sizes, as Rust
    #[arg(long, value_name = "FILE")]
    rust: Option<PathBuf>,
    /// The samples that each signature takes at a time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// The learning rate of the training signatures (SGD)
    #[arg(long, default_value_t = 0.01)]
    rate: f32,
    /// What to export; save and restore come together
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_values = export::SIGNATURES, value_parser = export::ALL_SIGNATURES)]
    signatures: Vec<String>,
}

impl Export {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let scope = Eager::with_seed(&gradlet::portable_cpu(), self.model.seed);
        let spec = &self.model.model;
        let model = Arc::new(spec.build(&scope)?);
        if let Some(path) = &self.weights {
            weights::load(&scope, &*model, path)?;
        }
        let options = export::Options { batch: self.batch, learning_rate: self.rate, signatures: self.signatures.clone() };
        let bytes = export::artifact(&scope, &model, spec, &options).with_context(|| format!("cannot export {spec}"))?;
        let source = match &self.rust {
            Some(path) => Some((path, firmware::source(&bytes, &self.command())?)),
            None => None,
        };
        write_whole(&self.output, &bytes)?;
        if let Some((path, source)) = source {
            write_whole(path, source.as_bytes())?;
        }
        if quiet { Ok(()) } else { print(&self.summary(&bytes)?) }
    }

    /// What to say of how the file was made: the same for the same options, wherever the files are.
    fn command(&self) -> String {
        format!("gradlet export {} --signatures {} --batch {}", self.model.model, self.signatures.join(","), self.batch)
    }

    fn summary(&self, bytes: &[u8]) -> Result<String> {
        let description = Description::read(bytes)?;
        let mut text = format!("{}: {} B\n", self.output.display(), description.length);
        for signature in &description.signatures {
            text += &format!("  {:<11} {:>9} B of arena if loaded alone\n", signature.name, signature.arena_bytes);
        }
        let names: Vec<&str> = description.signatures.iter().map(|signature| signature.name.as_str()).collect();
        text += &format!("  {:<11} {:>9} B of arena\n", "together", firmware::arena_bytes(bytes, &names)?);
        Ok(text)
    }
}
