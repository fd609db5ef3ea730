//! The commands `gradlet tfrecord …`.

mod features;
mod input;
mod inspect;
mod sources;
mod split;
mod verify;
mod write;

use anyhow::Result;
use clap::Subcommand;

/// Inspect, verify, write and split TFRecord files
#[derive(Subcommand)]
#[command(after_help = "Examples:
  gradlet tfrecord inspect train.tfrecord
  gradlet tfrecord verify --save whole.tfrecord broken.tfrecord
  gradlet tfrecord write digits.tfrecord --idx train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz
  gradlet tfrecord split digits.tfrecord --shards 4 --output shards/digits")]
pub enum TfRecord {
    Inspect(inspect::Inspect),
    Verify(verify::Verify),
    Write(write::Write),
    Split(split::Split),
}

impl TfRecord {
    pub fn run(&self, quiet: bool) -> Result<()> {
        match self {
            TfRecord::Inspect(inspect) => inspect.run(quiet),
            TfRecord::Verify(verify) => verify.run(quiet),
            TfRecord::Write(write) => write.run(quiet),
            TfRecord::Split(split) => split.run(quiet),
        }
    }
}
