//! Random access to records by their number.

use super::error::RecordError;
use super::frame::{FOOTER, check};
use super::mapped::{map, whole};
use bytes::Bytes;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Positions of the records of a file, for random access.
///
/// The file must be uncompressed. The index takes 8 bytes per record. To create it, only the lengths of the records are read, not their
/// data.
///
/// ```
/// use gradlet::io::tfrecord::{Compression, RecordIndex, RecordWriter};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("words.tfrecord");
/// let mut writer = RecordWriter::create(&path, Compression::None)?;
/// ["to", "be", "or"].iter().try_for_each(|word| writer.write(word.as_bytes()))?;
/// writer.finish()?;
///
/// let index = RecordIndex::open(&path)?;
/// assert_eq!((index.len(), index.get(2)?), (3, "or".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RecordIndex {
    bytes: Bytes,
    /// Start of the data of each record, followed by the position where the data of a further record would start.
    starts: Vec<u64>,
    path: Option<PathBuf>,
}

impl RecordIndex {
    /// Indexes the file at `path`, which is mapped into memory. The file must not change meanwhile: see [`map`].
    ///
    /// Fails if the file cannot be mapped, or at the first record that is truncated or has a damaged length.
    pub fn open(path: &Path) -> Result<RecordIndex, RecordError> {
        let index = RecordIndex::new(map(path)?).map_err(|error| error.of(path))?;
        Ok(RecordIndex { path: Some(path.into()), ..index })
    }

    /// Indexes the records in `bytes`. Fails in the same cases as [`open`](RecordIndex::open).
    pub fn new(bytes: Bytes) -> Result<RecordIndex, RecordError> {
        let (mut starts, mut at) = (Vec::new(), 0);
        while let Some(whole) = whole(&bytes, at)? {
            starts.push(whole.start as u64);
            at = whole.end;
        }
        starts.push((at + super::frame::HEADER) as u64);
        Ok(RecordIndex { bytes, starts, path: None })
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the position of the data of record `index` in the file, or `None` if there is no such record. The record itself begins 12
    /// bytes earlier.
    pub fn range(&self, index: usize) -> Option<Range<u64>> {
        let (start, next) = (self.starts.get(index)?, self.starts.get(index.checked_add(1)?)?);
        Some(*start..next - (super::frame::HEADER + FOOTER) as u64)
    }

    /// Returns record `index`, counted from 0, without copying it.
    ///
    /// Fails if its data is damaged, or if the index is out of range.
    pub fn get(&self, index: usize) -> Result<Bytes, RecordError> {
        let Some(range) = self.range(index) else {
            let text = format!("there is no record {index}: the number of records is {}", self.len());
            return Err(RecordError::from(std::io::Error::other(text)).maybe_of(self.path.as_deref()));
        };
        let (start, end) = (range.start as usize, range.end as usize);
        let checked = check(&self.bytes[start..end + FOOTER], range.start);
        checked.map_err(|fault| RecordError::from(fault).maybe_of(self.path.as_deref()))?;
        Ok(self.bytes.slice(start..end))
    }
}
