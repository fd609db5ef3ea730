//! The command `gradlet tfrecord write`.

use super::input::{Output, Packing, bar, records};
use super::sources::{self, Feed};
use crate::print;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// Write TFRecord files from IDX files, folders of images, CSV, lines of text, or other files
///
/// Images, IDX and CSV become Examples, which `parse_example` reads. Other files become records unchanged. Lines become records
/// without `\r`.
#[derive(Args)]
#[command(after_help = "Examples:
  gradlet tfrecord write digits.tfrecord --idx train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz
  gradlet tfrecord write pets.tfrecord --images pets --shards 8
  gradlet tfrecord write lines.tfrecord --lines shakespeare.txt --compression gzip")]
pub struct Write {
    /// File to write; with --shards, the beginning of the file names
    #[arg(value_name = "OUTPUT")]
    output: PathBuf,
    #[command(flatten)]
    from: From,
    /// Compression of the output
    #[arg(long, value_name = "KIND", default_value = "none")]
    compression: Packing,
    /// Distribute the records over N files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99_999))]
    shards: Option<u32>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct From {
    /// IDX files; the Examples have image (bytes), height, width, label
    #[arg(long, value_names = ["IMAGES", "LABELS"], num_args = 2)]
    idx: Option<Vec<PathBuf>>,
    /// Folder with a subfolder of JPEG, PNG, BMP or GIF files for each class; the Examples have image (the file), label, class, filename
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// CSV file with column names in its first line; each other line becomes an Example; a column is int64, float or bytes
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Text file; each line becomes a record, without the line ending
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,
    /// Files; each becomes a record
    #[arg(long, value_name = "FILE", num_args = 1..)]
    files: Option<Vec<PathBuf>>,
}

impl From {
    fn open(&self) -> Result<Feed> {
        match self {
            From { idx: Some(paths), .. } => sources::idx(&paths[0], &paths[1]),
            From { images: Some(path), .. } => sources::images(path),
            From { csv: Some(path), .. } => sources::csv(path),
            From { lines: Some(path), .. } => sources::lines(path),
            From { files, .. } => sources::files(files.clone().unwrap_or_default()),
        }
    }
}

impl Write {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let Feed { bytes, records: source } = self.from.open()?;
        let bar = bar(bytes, quiet);
        let mut output = Output::create(&self.output, self.shards.map(|shards| shards as usize), self.compression.into())?;
        let mut count = 0;
        for record in source {
            let (record, bytes) = record?;
            output.write(&record)?;
            bar.inc(bytes);
            count += 1;
        }
        bar.finish_and_clear();
        let paths = output.finish()?;
        let place = match paths.as_slice() {
            [path] => path.display().to_string(),
            paths => format!("{} files, {} to {}", paths.len(), paths[0].display(), paths[paths.len() - 1].display()),
        };
        print(&format!("{} in {place}\n", records(count)))
    }
}
