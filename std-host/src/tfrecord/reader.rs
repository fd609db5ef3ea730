//! Records of a stream, one after the other.

use super::BLOCK;
use super::compression::Compression;
use super::error::{Fault, RecordError};
use super::frame::{FOOTER, HEADER, check, length};
use super::window::Window;
use bytes::Bytes;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Reads records from a file, or from anything else that can be read: in large blocks, and checking every byte.
///
/// [`next_record`](RecordReader::next_record) lends a record where it was read. As an iterator the reader copies each record to
/// memory of its own: whoever keeps one record of a block, as a shuffle buffer does, keeps no more than that.
///
/// The first error is the last item; all records before it are given. A file that ends before a record's length and its
/// checksum are whole just ends, as it does for TensorFlow; one that ends after them is truncated. A compressed file
/// that is cut short ends where its bytes do. A length is believed only as far as there are bytes.
///
/// ```
/// use gradlet::tfrecord::{Compression, RecordReader, RecordWriter};
///
/// let mut writer = RecordWriter::new(Vec::new(), Compression::None);
/// writer.write(b"one")?;
/// writer.write(b"two")?;
/// let bytes = writer.into_inner()?;
///
/// let mut reader = RecordReader::new(&bytes[..], Compression::None);
/// let mut total = 0;
/// while let Some(record) = reader.next_record() {
///     total += record?.len();
/// }
/// assert_eq!(total, 6);
///
/// let mut cut = RecordReader::new(&bytes[..30], Compression::None);
/// assert_eq!(cut.next().transpose()?.as_deref(), Some(&b"one"[..]));
/// assert_eq!(cut.next().unwrap().unwrap_err().offset(), Some(19));
/// assert!(cut.next().is_none());
/// # Ok::<(), gradlet::tfrecord::RecordError>(())
/// ```
pub struct RecordReader<R> {
    window: Window<R>,
    path: Option<PathBuf>,
    ended: bool,
}

impl RecordReader<File> {
    /// Opens the file at `path`. Fails if it cannot be opened.
    pub fn open(path: &Path, compression: Compression) -> Result<RecordReader<File>, RecordError> {
        RecordReader::open_with(path, compression, BLOCK)
    }

    /// As [`open`](RecordReader::open); the file is read `buffer_size` bytes at a time, of which as many stay in memory.
    pub fn open_with(path: &Path, compression: Compression, buffer_size: usize) -> Result<RecordReader<File>, RecordError> {
        let file = File::open(path).map_err(|error| RecordError::from(error).of(path))?;
        // A folder can be opened like a file, but not be read.
        Ok(RecordReader { path: Some(path.into()), ..RecordReader::with_buffer_size(file, compression, buffer_size) })
    }

    /// Opens the file at `path`, which is not compressed, at the record that begins at byte `offset`: see
    /// [`offset`](RecordReader::offset).
    pub fn open_at(path: &Path, offset: u64) -> Result<RecordReader<File>, RecordError> {
        let mut file = File::open(path).map_err(|error| RecordError::from(error).of(path))?;
        file.seek(SeekFrom::Start(offset)).map_err(|error| RecordError::from(error).of(path))?;
        let mut reader = RecordReader::new(file, Compression::None);
        reader.window.begin_at(offset);
        Ok(RecordReader { path: Some(path.into()), ..reader })
    }
}

impl<R: Read> RecordReader<R> {
    /// Reads records from `from`.
    pub fn new(from: R, compression: Compression) -> RecordReader<R> {
        RecordReader::with_buffer_size(from, compression, BLOCK)
    }

    /// As [`new`](RecordReader::new); reads `buffer_size` bytes at a time, of which as many stay in memory.
    pub fn with_buffer_size(from: R, compression: Compression, buffer_size: usize) -> RecordReader<R> {
        RecordReader { window: Window::new(from, compression, buffer_size), path: None, ended: false }
    }

    /// Where the next record begins, in bytes of the uncompressed stream.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// The next record, which is lent up to the next call; `None` at the end, and after an error.
    ///
    /// The error is damage ([`RecordError::is_data_loss`]), or what the system says.
    pub fn next_record(&mut self) -> Option<Result<&[u8], RecordError>> {
        let range = self.step(RecordReader::advance)?;
        Some(range.map(|range| self.window.taken(range)))
    }

    /// Passes over `count` records, and gives how many there were. Their data is neither checked nor copied; their lengths
    /// are checked.
    pub fn skip_records(&mut self, count: usize) -> Result<usize, RecordError> {
        for skipped in 0..count {
            match self.step(RecordReader::pass) {
                Some(passed) => passed?,
                None => return Ok(skipped),
            }
        }
        Ok(count)
    }

    /// What `step` gives, unless all is over.
    fn step<T>(&mut self, step: impl FnOnce(&mut RecordReader<R>) -> Result<Option<T>, Fault>) -> Option<Result<T, RecordError>> {
        if self.ended {
            return None;
        }
        let result = step(self);
        self.ended = !matches!(result, Ok(Some(_)));
        // Where zlib knows of damage, it is the cause of what does not fit.
        let mut cause = |fault| self.window.failure().unwrap_or(fault);
        result.map_err(|fault| RecordError::from(cause(fault)).maybe_of(self.path.as_deref())).transpose()
    }

    /// Reads a record, and gives where it is in the window.
    fn advance(&mut self) -> Result<Option<Range<usize>>, Fault> {
        let offset = self.offset();
        let Some(length) = self.length()? else { return Ok(None) };
        let Some(whole) = usize::try_from(length).ok().and_then(|length| length.checked_add(FOOTER)) else {
            let there = self.window.skip(u64::MAX)?;
            return Err(Fault::Truncated { offset, length, there });
        };
        let there = self.window.want(whole)? as u64;
        if there < whole as u64 {
            return Err(Fault::Truncated { offset, length, there });
        }
        let length = check(&self.window.bytes()[..whole], self.offset())?;
        let range = self.window.take(whole);
        Ok(Some(range.start..range.start + length))
    }

    /// Passes over a record.
    fn pass(&mut self) -> Result<Option<()>, Fault> {
        let offset = self.offset();
        let Some(length) = self.length()? else { return Ok(None) };
        let whole = length.saturating_add(FOOTER as u64);
        let there = self.window.skip(whole)?;
        if there < whole { Err(Fault::Truncated { offset, length, there }) } else { Ok(Some(())) }
    }

    /// Takes a record's header.
    fn length(&mut self) -> Result<Option<u64>, Fault> {
        let offset = self.offset();
        self.window.want(HEADER)?;
        let Some(header) = self.window.bytes().first_chunk() else { return Ok(None) };
        let length = length(header, offset)?;
        self.window.take(HEADER);
        Ok(Some(length))
    }
}

impl<R: Read> Iterator for RecordReader<R> {
    type Item = Result<Bytes, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_record()?.map(Bytes::copy_from_slice))
    }

    /// Passes over `n` records as [`skip_records`](RecordReader::skip_records) does.
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        match self.skip_records(n) {
            Ok(_) => self.next(),
            Err(error) => Some(Err(error)),
        }
    }
}
