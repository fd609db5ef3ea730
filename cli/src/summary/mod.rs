//! The commands `gradlet summary …`.

mod export;
mod inspect;
mod media;
mod runs;
mod values;

use anyhow::Result;
use clap::Subcommand;

/// Inspect the event files of TensorBoard, and export their contents
#[derive(Subcommand)]
#[command(after_help = "Examples:
  gradlet summary inspect logs
  gradlet summary inspect logs --run train --tag 'epoch_*' --json
  gradlet summary export logs --csv scalars.csv
  gradlet summary export logs --json all.json --media pictures")]
pub enum Summary {
    Inspect(inspect::Inspect),
    Export(export::Export),
}

impl Summary {
    pub fn run(&self, quiet: bool) -> Result<()> {
        match self {
            Summary::Inspect(inspect) => inspect.run(quiet),
            Summary::Export(export) => export.run(quiet),
        }
    }
}
