//! Reader of the records of a stream.

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

/// Reads records from a file or any other source of bytes. It reads large blocks and checks every byte.
///
/// [`next_record`](RecordReader::next_record) returns a record that borrows the reader's memory. As an iterator, the reader copies each
/// record to its own memory. A caller that keeps one record of a block, as a shuffle buffer does, thus keeps only that record.
///
/// All records before the first error are returned. The error is the last item.
///
/// If the file ends within a record's data or the checksum of the data, the last item is an error. If it ends earlier in a record, within
/// the length or the checksum of the length, reading ends without an error, as in TensorFlow. [`cut`](RecordReader::cut) reports such an
/// end. For a truncated compressed file, these rules apply to the bytes that can be decompressed.
///
/// Memory is allocated only for bytes that exist, whatever length a record claims. A record longer than [`MAX_RECORD_BYTES`], or than
/// another [limit](RecordReader::max_record_bytes), is an error that allocates no memory.
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

    /// Opens a file like [`open`](RecordReader::open), but with another buffer size. The reader reads `buffer_size` bytes at a time, and
    /// keeps that many in memory.
    pub fn open_with(path: &Path, compression: Compression, buffer_size: usize) -> Result<RecordReader<File>, RecordError> {
        let file = File::open(path).map_err(|error| RecordError::from(error).of(path))?;
        Ok(RecordReader::with_buffer_size(file, compression, buffer_size).with_path(path))
    }

    /// Opens the uncompressed file at `path` at the record that begins at byte `offset`: see [`offset`](RecordReader::offset).
    pub fn open_at(path: &Path, offset: u64) -> Result<RecordReader<File>, RecordError> {
        let mut file = File::open(path).map_err(|error| RecordError::from(error).of(path))?;
        file.seek(SeekFrom::Start(offset)).map_err(|error| RecordError::from(error).of(path))?;
        let mut reader = RecordReader::new(file, Compression::None);
        reader.window.begin_at(offset);
        Ok(reader.with_path(path))
    }
}

impl<R: Read> RecordReader<R> {
    /// Creates a reader of the records of `from`.
    pub fn new(from: R, compression: Compression) -> RecordReader<R> {
        RecordReader::with_buffer_size(from, compression, BLOCK)
    }

    /// Creates a reader like [`new`](RecordReader::new), but with another buffer size. It reads `buffer_size` bytes at a time, and keeps
    /// that many in memory.
    pub fn with_buffer_size(from: R, compression: Compression, buffer_size: usize) -> RecordReader<R> {
        let window = Window::new(from, compression, buffer_size);
        RecordReader { window, path: None, limit: MAX_RECORD_BYTES, ended: false, failed: false }
    }

    /// Sets the maximum length of a record's data in bytes. The default is [`MAX_RECORD_BYTES`]. A longer record is an error.
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

    /// Returns the start of the next record, in bytes of the uncompressed stream.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// Returns the next record, which stays valid until the next call. Returns `None` at the end and after an error.
    ///
    /// The error is damage ([`RecordError::is_data_loss`]), a record above the limit, or an error of the system.
    pub fn next_record(&mut self) -> Option<Result<&[u8], RecordError>> {
        if self.ended {
            return None;
        }
        match self.advance() {
            Ok(Some(range)) => return Some(Ok(self.window.taken(range))),
            Ok(None) => self.ended = true,
            Err(fault) => {
                (self.ended, self.failed) = (true, true);
                // Damage that zlib reports is the cause of the other errors.
                let cause = self.window.failure().unwrap_or(fault);
                let path = self.path.as_deref();
                return Some(Err(RecordError::from(explained(cause, path)).maybe_of(path)));
            }
        }
        None
    }

    /// Returns the end of the last complete record if the stream was truncated after it without causing an error. That is the case if the
    /// stream ends within a record's length or the checksum of the length, which TensorFlow treats as the end of the file. It is also the
    /// case if the compressed stream is truncated between records. Returns `None` if the stream is complete, if its end is not reached
    /// yet, and after an error.
    pub fn cut(&self) -> Option<u64> {
        let whole = self.window.bytes().is_empty() && self.window.is_whole();
        (self.ended && !self.failed && !whole).then(|| self.offset())
    }

    /// Sets the path that errors name. [`open`](RecordReader::open) also sets it.
    pub fn with_path(self, path: &Path) -> RecordReader<R> {
        RecordReader { path: Some(path.into()), ..self }
    }

    /// Reads a record and returns the range of its data in the window, or `None` at the end of the stream.
    fn advance(&mut self) -> Result<Option<Range<usize>>, Fault> {
        let offset = self.offset();
        let Some(length) = self.length()? else { return Ok(None) };
        if length > self.limit {
            return Err(self.too_long(offset, length)?);
        }
        // Larger than any existing number of bytes, so it cannot be reached.
        let whole = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(FOOTER);
        let there = self.window.want(whole)? as u64;
        if there < whole as u64 {
            return Err(Fault::Truncated { offset, length, there });
        }
        let length = check(&self.window.bytes()[..whole], self.offset())?;
        let range = self.window.take(whole);
        Ok(Some(range.start..range.start + length))
    }

    /// Returns the fault of a record whose length exceeds the limit. It is `Truncated` if the stream ends before the limit is reached. The
    /// bytes are skipped, not kept.
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

    /// Reads the header of a record and returns the length of its data. Returns `None` if the stream ends before the end of the header.
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

    /// Skips `n` records. They are checked, but not copied.
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        for _ in 0..n {
            // An error counts as an item, and is the last one.
            let _ = self.next_record()?;
        }
        self.next()
    }
}
