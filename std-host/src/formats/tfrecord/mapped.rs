//! Records in memory, and files that are mapped into it.

// Mapping a file is unsafe: see `map`.
#![allow(unsafe_code)]

use super::error::{Fault, RecordError};
use super::frame::{FOOTER, HEADER, check, length};
use bytes::Bytes;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maps the file at `path` into memory: its bytes are read from the disk where somebody looks at them, and the system may drop
/// them again. All slices of them keep the mapping.
///
/// The file must not be changed while it is mapped. If another program writes to it, the bytes change under their reader; if it
/// is cut short, the system ends this program (SIGBUS) once it reads what is gone. Take
/// [`RecordReader`](super::RecordReader) for a file that may change.
///
/// Fails if the file cannot be opened or mapped.
pub fn map(path: &Path) -> Result<Bytes, RecordError> {
    let file = File::open(path).map_err(|error| RecordError::from(error).of(path))?;
    // SAFETY: the memory is only read, and stays mapped as long as a slice of it is there. That the file is not changed is asked
    // of the caller above: no program can keep another from changing a file.
    let mapped = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| RecordError::from(error).of(path))?;
    Ok(Bytes::from_owner(mapped))
}

/// The records in `bytes` that are not compressed, without copying them: each keeps all of the bytes.
///
/// Errors are those of a [`RecordReader`](super::RecordReader).
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
    /// The records of the file at `path`, which is mapped into memory: see [`map`] for what must not be done to it.
    pub fn open(path: &Path) -> Result<Records, RecordError> {
        Ok(Records { bytes: map(path)?, at: 0, path: Some(path.into()) })
    }

    /// The records in `bytes`.
    pub fn new(bytes: Bytes) -> Records {
        Records { bytes, at: 0, path: None }
    }

    /// Where the next record begins.
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

    /// Passes over `n` records: looks at their lengths only.
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

/// Where the data and checksum of the record are that begins at `at`, if one does.
pub(super) fn whole(bytes: &[u8], at: usize) -> Result<Option<Range<usize>>, Fault> {
    let Some((header, rest)) = bytes.get(at..).and_then(|bytes| bytes.split_first_chunk::<HEADER>()) else { return Ok(None) };
    let length = length(header, at as u64)?;
    let whole = usize::try_from(length).ok().and_then(|length| length.checked_add(FOOTER));
    let whole = whole.filter(|&whole| whole <= rest.len());
    let truncated = || Fault::Truncated { offset: at as u64, length, there: rest.len() as u64 };
    let whole = whole.ok_or_else(truncated)?;
    Ok(Some(at + HEADER..at + HEADER + whole))
}
