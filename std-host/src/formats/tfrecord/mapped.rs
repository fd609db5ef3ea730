//! Records in memory, and memory-mapped files.

// Mapping a file is unsafe: see `map`.
#![allow(unsafe_code)]

use super::error::{Fault, RecordError};
use super::frame::{FOOTER, HEADER, check, length};
use bytes::Bytes;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maps the file at `path` into memory. Its bytes are read from the disk when they are accessed, and the system may drop them again. Every
/// slice of the bytes keeps the file mapped.
///
/// The file must not change while it is mapped. If another program writes to it, the bytes change under their reader. If the file is
/// truncated, reading the missing part ends this program with SIGBUS. For a file that may change, use
/// [`RecordReader`](super::RecordReader).
///
/// Fails if the file cannot be opened or mapped.
pub fn map(path: &Path) -> Result<Bytes, RecordError> {
    let file = File::open(path).map_err(|error| RecordError::from(error).of(path))?;
    // SAFETY: the memory is only read, and stays mapped as long as a slice of it exists. The documentation above requires that the file
    // does not change, because no program can prevent another one from changing it.
    let mapped = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| RecordError::from(error).of(path))?;
    Ok(Bytes::from_owner(mapped))
}

/// Iterator over the uncompressed records in `bytes`. It does not copy them, so each record keeps all of the bytes alive.
///
/// The errors are those of a [`RecordReader`](super::RecordReader).
///
/// ```
/// use gradlet::io::tfrecord::{Compression, RecordWriter, Records};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("a.tfrecord");
/// let mut writer = RecordWriter::create(&path, Compression::None)?;
/// writer.write(b"mapped")?;
/// writer.finish()?;
/// let records = Records::open(&path)?.collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(records, ["mapped"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Records {
    bytes: Bytes,
    at: usize,
    path: Option<PathBuf>,
}

impl Records {
    /// Opens the file at `path` and maps it into memory. The file must not change meanwhile: see [`map`].
    pub fn open(path: &Path) -> Result<Records, RecordError> {
        Ok(Records { bytes: map(path)?, at: 0, path: Some(path.into()) })
    }

    /// Creates an iterator over the records in `bytes`.
    pub fn new(bytes: Bytes) -> Records {
        Records { bytes, at: 0, path: None }
    }

    /// Returns the start of the next record.
    pub fn offset(&self) -> u64 {
        self.at as u64
    }

    fn item(&mut self, whole: Result<Range<usize>, Fault>) -> Result<Bytes, RecordError> {
        let checked = whole.and_then(|whole| {
            let length = check(&self.bytes[whole.clone()], whole.start as u64)?;
            self.at = whole.end;
            Ok(self.bytes.slice(whole.start..whole.start + length))
        });
        checked.map_err(|fault| {
            self.at = self.bytes.len();
            RecordError::from(fault).maybe_of(self.path.as_deref())
        })
    }
}

impl Iterator for Records {
    type Item = Result<Bytes, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let whole = whole(&self.bytes, self.at).transpose()?;
        Some(self.item(whole))
    }

    /// Skips `n` records. Only their lengths are checked.
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        for _ in 0..n {
            match whole(&self.bytes, self.at).transpose()? {
                Ok(whole) => self.at = whole.end,
                fault => return Some(self.item(fault)),
            }
        }
        self.next()
    }
}

/// Returns the range of the data and checksum of the record at `at`, or `None` at the end of the bytes.
pub(super) fn whole(bytes: &[u8], at: usize) -> Result<Option<Range<usize>>, Fault> {
    let Some((header, rest)) = bytes.get(at..).and_then(|bytes| bytes.split_first_chunk::<HEADER>()) else { return Ok(None) };
    let length = length(header, at as u64)?;
    let whole = usize::try_from(length).ok().and_then(|length| length.checked_add(FOOTER));
    let whole = whole.filter(|&whole| whole <= rest.len());
    let truncated = || Fault::Truncated { offset: at as u64, length, there: rest.len() as u64 };
    let whole = whole.ok_or_else(truncated)?;
    Ok(Some(at + HEADER..at + HEADER + whole))
}
