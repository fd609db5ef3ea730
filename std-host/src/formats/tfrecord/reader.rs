//! Records of a stream, one after the other.

use super::compression::Compression;
use super::error::{Fault, RecordError};
use super::frame::{FOOTER, HEADER, check, length};
use super::inflate::explained;
use super::window::Window;
use super::{BLOCK, MAX_RECORD_BYTES};
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
/// that is cut short ends where its bytes do. A length is believed only as far as there are bytes, and a record longer than
/// [`MAX_RECORD_BYTES`], or another [limit](RecordReader::max_record_bytes), is an error that costs no memory.
///
/// ```
/// use gradlet::io::tfrecord::{Compression, RecordReader, RecordWriter};
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
/// let mut cut = RecordReader::new(&bytes[..33], Compression::None);
/// assert_eq!(cut.next().transpose()?.as_deref(), Some(&b"one"[..]));
/// assert_eq!(cut.next().unwrap().unwrap_err().offset(), Some(19));
/// assert!(cut.next().is_none());
/// # Ok::<(), gradlet::io::tfrecord::RecordError>(())
/// ```
pub struct RecordReader<R> {
    window: Window<R>,
    path: Option<PathBuf>,
    limit: u64,
    ended: bool,
    failed: bool,
}

impl RecordReader<File> {
    /// Opens the file at `path`. Fails if it cannot be opened.
    pub fn open(path: &Path, compression: Compression) -> Result<RecordReader<File>, RecordError> {
        RecordReader::open_with(path, compression, BLOCK)
    }

    /// As [`open`](RecordReader::open); the file is read `buffer_size` bytes at a time, of which as many stay in memory.
    pub fn open_with(path: &Path, compression: Compression, buffer_size: usize) -> Result<RecordReader<File>, RecordError> {
        let file = File::open(path).map_err(|error| RecordError::from(error).of(path))?;
        Ok(RecordReader::with_buffer_size(file, compression, buffer_size).with_path(path))
    }

    /// Opens the file at `path`, which is not compressed, at the record that begins at byte `offset`: see
    /// [`offset`](RecordReader::offset).
    pub fn open_at(path: &Path, offset: u64) -> Result<RecordReader<File>, RecordError> {
        let mut file = File::open(path).map_err(|error| RecordError::from(error).of(path))?;
        file.seek(SeekFrom::Start(offset)).map_err(|error| RecordError::from(error).of(path))?;
        let mut reader = RecordReader::new(file, Compression::None);
        reader.window.begin_at(offset);
        Ok(reader.with_path(path))
    }
}

impl<R: Read> RecordReader<R> {
    /// Reads records from `from`.
    pub fn new(from: R, compression: Compression) -> RecordReader<R> {
        RecordReader::with_buffer_size(from, compression, BLOCK)
    }

    /// As [`new`](RecordReader::new); reads `buffer_size` bytes at a time, of which as many stay in memory.
    pub fn with_buffer_size(from: R, compression: Compression, buffer_size: usize) -> RecordReader<R> {
        let window = Window::new(from, compression, buffer_size);
        RecordReader { window, path: None, limit: MAX_RECORD_BYTES, ended: false, failed: false }
    }

    /// The bytes of data that a record has at most: [`MAX_RECORD_BYTES`] unless another limit is given. A longer one is an error.
    ///
    /// ```
    /// use gradlet::io::tfrecord::{Compression, RecordReader, RecordWriter};
    ///
    /// let mut writer = RecordWriter::new(Vec::new(), Compression::Gzip);
    /// writer.write(&[0; 5000])?;
    /// let bytes = writer.into_inner()?;
    /// let reader = || RecordReader::new(&bytes[..], Compression::Gzip);
    /// assert!(reader().max_record_bytes(4999).next().unwrap().is_err());
    /// assert_eq!(reader().max_record_bytes(5000).next().unwrap()?.len(), 5000);
    /// # Ok::<(), gradlet::io::tfrecord::RecordError>(())
    /// ```
    pub fn max_record_bytes(self, limit: u64) -> RecordReader<R> {
        RecordReader { limit, ..self }
    }

    /// Where the next record begins, in bytes of the uncompressed stream.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// The next record, which is lent up to the next call; `None` at the end, and after an error.
    ///
    /// The error is damage ([`RecordError::is_data_loss`]), or what the system says.
    pub fn next_record(&mut self) -> Option<Result<&[u8], RecordError>> {
        if self.ended {
            return None;
        }
        match self.advance() {
            Ok(Some(range)) => return Some(Ok(self.window.taken(range))),
            Ok(None) => self.ended = true,
            Err(fault) => {
                (self.ended, self.failed) = (true, true);
                // Where zlib knows of damage, it is the cause of what does not fit.
                let cause = self.window.failure().unwrap_or(fault);
                let path = self.path.as_deref();
                return Some(Err(RecordError::from(explained(cause, path)).maybe_of(path)));
            }
        }
        None
    }

    /// Where a stream that just ended was cut short nevertheless: within a record's length and its checksum, which TensorFlow takes
    /// for the end, or within what was compressed. `None` where all is whole, before the end, and after an error.
    pub fn cut(&self) -> Option<u64> {
        let whole = self.window.bytes().is_empty() && self.window.is_whole();
        (self.ended && !self.failed && !whole).then(|| self.offset())
    }

    /// The errors of the reader name `path`. [`open`](RecordReader::open) sees to that, too.
    pub fn with_path(self, path: &Path) -> RecordReader<R> {
        RecordReader { path: Some(path.into()), ..self }
    }

    /// Reads a record, and gives where it is in the window.
    fn advance(&mut self) -> Result<Option<Range<usize>>, Fault> {
        let offset = self.offset();
        let Some(length) = self.length()? else { return Ok(None) };
        if length > self.limit {
            return Err(self.too_long(offset, length)?);
        }
        // No stream has as many bytes as a number can claim.
        let whole = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(FOOTER);
        let there = self.window.want(whole)? as u64;
        if there < whole as u64 {
            return Err(Fault::Truncated { offset, length, there });
        }
        let length = check(&self.window.bytes()[..whole], self.offset())?;
        let range = self.window.take(whole);
        Ok(Some(range.start..range.start + length))
    }

    /// The fault of a record whose length is above the limit: truncated, where the stream ends before the limit does. Its bytes are
    /// skipped, not kept.
    fn too_long(&mut self, offset: u64, length: u64) -> Result<Fault, Fault> {
        let mut there = 0;
        while there <= self.limit {
            if self.window.want(1)? == 0 {
                return Ok(Fault::Truncated { offset, length, there });
            }
            let bytes = self.window.bytes().len();
            self.window.take(bytes);
            there += bytes as u64;
        }
        Ok(Fault::TooLong { offset, length, limit: self.limit })
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

    /// Passes over `n` records, which are checked, but not copied.
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        for _ in 0..n {
            // An error is an item, and the last.
            let _ = self.next_record()?;
        }
        self.next()
    }
}
