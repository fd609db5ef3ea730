//! The commands `gradlet ckpt …`.

mod convert;
mod diff;
mod inspect;
mod names;
mod numbers;
mod source;
mod target;
mod tree;
mod verify;

use anyhow::Result;
use clap::Subcommand;

/// Inspect, verify, compare and convert checkpoints
///
/// A checkpoint is one of four kinds: TensorFlow's, a safetensors file, the variables of an artifact (.grdl), or a flat checkpoint
/// of a device (.grdc). A TensorFlow checkpoint is given by its prefix (`ckpt-1`), or by its folder for the latest one.
#[derive(Subcommand)]
#[command(after_help = "Examples:
  gradlet ckpt inspect --tree training/ckpt-7
  gradlet ckpt verify training
  gradlet ckpt diff training/ckpt-6 training/ckpt-7
  gradlet ckpt convert training/ckpt-7 weights.safetensors
  gradlet ckpt convert training/ckpt-7 tuned.grdl --like cnn.grdl")]
pub enum Ckpt {
    Inspect(inspect::Inspect),
    Verify(verify::Verify),
    Diff(diff::Diff),
    Convert(convert::Convert),
}

impl Ckpt {
    pub fn run(&self, quiet: bool) -> Result<()> {
        match self {
            Ckpt::Inspect(inspect) => inspect.run(quiet),
            Ckpt::Verify(verify) => verify.run(quiet),
            Ckpt::Diff(diff) => diff.run(),
            Ckpt::Convert(convert) => convert.run(quiet),
        }
    }
}
