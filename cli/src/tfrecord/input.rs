//! Input and output files of the commands.

use anyhow::Result;
use clap::{Args, ValueEnum};
use gradlet::io::tfrecord::{Compression, MAX_RECORD_BYTES, RecordError, RecordReader, RecordWriter, ShardedWriter};
use gradlet::io::{FileError, WholeFile};
use indicatif::{ProgressBar, ProgressBarIter, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// The files to read.
#[derive(Args)]
pub struct Input {
    /// TFRecord files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Compression of the files [default: detected from the first bytes]
    #[arg(long, value_name = "KIND")]
    compression: Option<Packing>,
    /// Maximum size of a record; a record is held in memory
    #[arg(long, value_name = "BYTES", default_value_t = MAX_RECORD_BYTES)]
    max_record_bytes: u64,
}

/// Compression of files.
#[derive(Clone, Copy, ValueEnum)]
pub enum Packing {
    None,
    Gzip,
    Zlib,
}

impl From<Packing> for Compression {
    fn from(packing: Packing) -> Compression {
        match packing {
            Packing::None => Compression::None,
            Packing::Gzip => Compression::Gzip,
            Packing::Zlib => Compression::Zlib,
        }
    }
}

impl Input {
    /// Returns the compression of a file.
    pub fn compression(&self, path: &Path) -> Result<Compression> {
        Ok(self.compression.map_or_else(|| Compression::detect(path), |packing| Ok(packing.into()))?)
    }

    /// Creates a progress bar for the bytes of all files.
    pub fn bar(&self, quiet: bool) -> Result<ProgressBar> {
        let sizes = self.files.iter().map(|path| size(path)).collect::<Result<Vec<_>>>()?;
        Ok(bar(sizes.iter().sum(), quiet))
    }

    /// Opens a file. `bar` shows the progress of reading.
    pub fn open(&self, path: &Path, bar: &ProgressBar) -> Result<RecordReader<ProgressBarIter<File>>> {
        let compression = self.compression(path)?;
        let file = File::open(path).map_err(|error| FileError::io(path, error))?;
        Ok(RecordReader::new(bar.wrap_read(file), compression).with_path(path).max_record_bytes(self.max_record_bytes))
    }

    /// Opens an uncompressed file at the record that begins at byte `offset`.
    pub fn open_at(&self, path: &Path, offset: u64) -> Result<RecordReader<File>> {
        Ok(RecordReader::open_at(path, offset)?.max_record_bytes(self.max_record_bytes))
    }
}

/// Returns the size of a file in bytes.
pub fn size(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).map_err(|error| FileError::io(path, error))?.len())
}

/// Creates a progress bar for a number of bytes. It is shown only on a terminal.
pub fn bar(bytes: u64, quiet: bool) -> ProgressBar {
    let hidden = quiet || !std::io::stderr().is_terminal();
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::with_draw_target(Some(bytes), target).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// An output: one file, or several files that get the records in turn.
pub enum Output {
    One(Box<RecordWriter<WholeFile>>, PathBuf),
    Many(ShardedWriter),
}

impl Output {
    /// Creates the file at `path`. With shards, creates files whose names begin with `path` without `.tfrecord`.
    pub fn create(path: &Path, shards: Option<usize>, compression: Compression) -> Result<Output> {
        Ok(match shards {
            None => Output::One(Box::new(RecordWriter::create(path, compression)?), path.into()),
            Some(count) => {
                let named = path.extension().is_some_and(|extension| extension == "tfrecord");
                let prefix = if named { path.with_extension("") } else { path.into() };
                Output::Many(ShardedWriter::create(&prefix, count, compression)?)
            }
        })
    }

    pub fn write(&mut self, record: &[u8]) -> Result<(), RecordError> {
        match self {
            Output::One(writer, _) => writer.write(record),
            Output::Many(writer) => writer.write(record),
        }
    }

    /// Completes the files and returns their paths.
    pub fn finish(self) -> Result<Vec<PathBuf>> {
        Ok(match self {
            Output::One(writer, path) => {
                writer.finish()?;
                vec![path]
            }
            Output::Many(writer) => writer.finish()?,
        })
    }
}

/// Formats a count: `1 record`, `60,000 records`.
pub fn records(count: u64) -> String {
    format!("{} record{}", indicatif::HumanCount(count), if count == 1 { "" } else { "s" })
}
