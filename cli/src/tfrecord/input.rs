//! Files of records, as all of these commands take and make them.

use anyhow::Result;
use clap::{Args, ValueEnum};
use gradlet::io::tfrecord::{Compression, MAX_RECORD_BYTES, RecordError, RecordReader, RecordWriter, ShardedWriter};
use gradlet::io::{FileError, WholeFile};
use indicatif::{ProgressBar, ProgressBarIter, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// The files that are read.
#[derive(Args)]
pub struct Input {
    /// TFRecord files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// How they are compressed, if not as their first bytes say
    #[arg(long, value_name = "KIND")]
    compression: Option<Packing>,
    /// The bytes of the longest record that is accepted: it is held in memory
    #[arg(long, value_name = "BYTES", default_value_t = MAX_RECORD_BYTES)]
    max_record_bytes: u64,
}

/// How files are compressed.
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
    /// How a file is compressed.
    pub fn compression(&self, path: &Path) -> Result<Compression> {
        Ok(self.compression.map_or_else(|| Compression::detect(path), |packing| Ok(packing.into()))?)
    }

    /// A bar over the bytes of all files.
    pub fn bar(&self, quiet: bool) -> Result<ProgressBar> {
        let sizes = self.files.iter().map(|path| size(path)).collect::<Result<Vec<_>>>()?;
        Ok(bar(sizes.iter().sum(), quiet))
    }

    /// Opens a file; `bar` moves as it is read.
    pub fn open(&self, path: &Path, bar: &ProgressBar) -> Result<RecordReader<ProgressBarIter<File>>> {
        let compression = self.compression(path)?;
        let file = File::open(path).map_err(|error| FileError::io(path, error))?;
        Ok(RecordReader::new(bar.wrap_read(file), compression).with_path(path).max_record_bytes(self.max_record_bytes))
    }

    /// Opens a file that is not compressed at the record that begins at byte `offset`.
    pub fn open_at(&self, path: &Path, offset: u64) -> Result<RecordReader<File>> {
        Ok(RecordReader::open_at(path, offset)?.max_record_bytes(self.max_record_bytes))
    }
}

/// The bytes of a file.
pub fn size(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).map_err(|error| FileError::io(path, error))?.len())
}

/// A bar over so many bytes, on a terminal.
pub fn bar(bytes: u64, quiet: bool) -> ProgressBar {
    let hidden = quiet || !std::io::stderr().is_terminal();
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::with_draw_target(Some(bytes), target).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// One file that is written, or many in turns.
pub enum Output {
    One(Box<RecordWriter<WholeFile>>, PathBuf),
    Many(ShardedWriter),
}

impl Output {
    /// The file at `path`; or with shards, those whose names begin as `path` does, without `.tfrecord`.
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

    /// Gives the files their places, and their paths back.
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

/// `1 record`, `60,000 records`.
pub fn records(count: u64) -> String {
    format!("{} record{}", indicatif::HumanCount(count), if count == 1 { "" } else { "s" })
}
