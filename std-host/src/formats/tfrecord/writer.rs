//! Writer of records.

use super::BLOCK;
use super::compression::Compression;
use super::error::RecordError;
use super::frame::{header, masked_crc32c};
use crate::files::WholeFile;
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes records to a file or any other destination.
///
/// A file of [`create`](RecordWriter::create) appears at its path only when [`finish`](RecordWriter::finish) has completed it. If `finish`
/// is not called, the file is removed. If the destination is a [`File`](std::fs::File) of the caller, records are written directly to it,
/// as TensorFlow's writer does.
///
/// ```
/// use gradlet::io::tfrecord::{Compression, RecordReader, RecordWriter};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("squares.tfrecord");
/// let mut writer = RecordWriter::create(&path, Compression::Zlib)?;
/// for number in 0..10u32 {
///     writer.write(&(number * number).to_le_bytes())?;
/// }
/// writer.finish()?;
/// assert_eq!(RecordReader::open(&path, Compression::Zlib)?.count(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RecordWriter<W: Write> {
    sink: Sink<W>,
    path: Option<PathBuf>,
}

enum Sink<W: Write> {
    Plain(BufWriter<W>),
    Gzip(GzEncoder<BufWriter<W>>),
    Zlib(ZlibEncoder<BufWriter<W>>),
}

impl RecordWriter<WholeFile> {
    /// Starts a file that will be moved to `path`. Fails if it cannot be written.
    pub fn create(path: &Path, compression: Compression) -> Result<RecordWriter<WholeFile>, RecordError> {
        let file = WholeFile::create(path)?;
        Ok(RecordWriter { path: Some(path.into()), ..RecordWriter::new(file, compression) })
    }

    /// Writes the bytes that are still in memory and moves the file to its path.
    pub fn finish(self) -> Result<(), RecordError> {
        Ok(self.into_inner()?.finish()?)
    }
}

impl<W: Write> RecordWriter<W> {
    /// Creates a writer to `to`. It compresses like TensorFlow, with level 6.
    pub fn new(to: W, compression: Compression) -> RecordWriter<W> {
        let (to, level) = (BufWriter::with_capacity(BLOCK, to), flate2::Compression::default());
        let sink = match compression {
            Compression::None => Sink::Plain(to),
            Compression::Gzip => Sink::Gzip(GzEncoder::new(to, level)),
            Compression::Zlib => Sink::Zlib(ZlibEncoder::new(to, level)),
        };
        RecordWriter { sink, path: None }
    }

    /// Writes a record. Fails if the destination cannot be written.
    pub fn write(&mut self, record: &[u8]) -> Result<(), RecordError> {
        let written = match &mut self.sink {
            Sink::Plain(sink) => frame(sink, record),
            Sink::Gzip(sink) => frame(sink, record),
            Sink::Zlib(sink) => frame(sink, record),
        };
        written.map_err(|error| RecordError::from(error).maybe_of(self.path.as_deref()))
    }

    /// Writes all buffered bytes to the destination, also those of a compressed stream. Frequent calls make a compressed stream larger.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        let flushed = match &mut self.sink {
            Sink::Plain(sink) => sink.flush(),
            Sink::Gzip(sink) => sink.flush(),
            Sink::Zlib(sink) => sink.flush(),
        };
        flushed.map_err(|error| RecordError::from(error).maybe_of(self.path.as_deref()))
    }

    /// Writes the bytes that are still in memory, including the end of a compressed stream, and returns the destination.
    pub fn into_inner(self) -> Result<W, RecordError> {
        let buffer = match self.sink {
            Sink::Plain(sink) => Ok(sink),
            Sink::Gzip(sink) => sink.finish(),
            Sink::Zlib(sink) => sink.finish(),
        };
        let inner = buffer.and_then(|buffer| buffer.into_inner().map_err(io::IntoInnerError::into_error));
        inner.map_err(|error| RecordError::from(error).maybe_of(self.path.as_deref()))
    }
}

/// Writes a record with its length and checksums.
pub(crate) fn frame(to: &mut impl Write, record: &[u8]) -> io::Result<()> {
    to.write_all(&header(record.len()))?;
    to.write_all(record)?;
    to.write_all(&masked_crc32c(record).to_le_bytes())
}
