//! The command `gradlet tfrecord split`.

use super::input::{Input, Output, Packing, records};
use crate::print;
use anyhow::Result;
use clap::Args;
use gradlet::io::tfrecord::Compression;
use std::path::PathBuf;

/// Distribute the records of TFRecord files over shards: record i goes to shard i modulo the number of shards
///
/// If as many shards are read in parallel as there are, the records have their original order.
#[derive(Args)]
#[command(after_help = "Example:
  gradlet tfrecord split train.tfrecord --shards 4 --output shards/train
writes shards/train-00000-of-00004.tfrecord to shards/train-00003-of-00004.tfrecord.")]
pub struct Split {
    #[command(flatten)]
    input: Input,
    /// Number of files to write
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99_999))]
    shards: u32,
    /// Beginning of the file names
    #[arg(long, value_name = "PREFIX")]
    output: PathBuf,
    /// Compression of the output files
    #[arg(long, value_name = "KIND", default_value = "none")]
    output_compression: Packing,
}

impl Split {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let bar = self.input.bar(quiet)?;
        let compression = Compression::from(self.output_compression);
        let mut output = Output::create(&self.output, Some(self.shards as usize), compression)?;
        let mut count = 0;
        for path in &self.input.files {
            let mut reader = self.input.open(path, &bar)?;
            while let Some(record) = reader.next_record() {
                output.write(record?)?;
                count += 1;
            }
        }
        bar.finish_and_clear();
        let paths = output.finish()?;
        print(&format!("{} in {} files, {} to {}\n", records(count), paths.len(), paths[0].display(), paths[paths.len() - 1].display()))
    }
}
