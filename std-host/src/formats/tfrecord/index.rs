//! Records by their numbers.

use super::error::RecordError;
use super::frame::{FOOTER, check};
use super::mapped::{map, whole};
use bytes::Bytes;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where each record of a file is, so that any of them can be read.
///
/// The file must not be compressed. The index takes 8 bytes a record, and is made without reading the records' data.
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
    /// Where data begins, for each record, and where that of the next would begin.
    starts: Vec<u64>,
    path: Option<PathBuf>,
}

impl RecordIndex {
    /// Indexes the file at `path`, which is mapped into memory: see [`map`] for what must not be done to it.
    ///
    /// Fails if the file cannot be mapped, or at the first record whose length is damaged or that is cut short.
    pub fn open(path: &Path) -> Result<RecordIndex, RecordError> {
        let index = RecordIndex::new(map(path)?).map_err(|error| error.of(path))?;
        Ok(RecordIndex { path: Some(path.into()), ..index })
    }

    /// Indexes the records in `bytes`. Fails as [`open`](RecordIndex::open) does.
    pub fn new(bytes: Bytes) -> Result<RecordIndex, RecordError> {
        let (mut starts, mut at) = (Vec::new(), 0);
        while let Some(whole) = whole(&bytes, at)? {
            starts.push(whole.start as u64);
            at = whole.end;
        }
        starts.push((at + super::frame::HEADER) as u64);
        Ok(RecordIndex { bytes, starts, path: None })
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the data of record `index` is in the file, or `None` if there is no such record. The record begins 12 bytes before.
    pub fn range(&self, index: usize) -> Option<Range<u64>> {
        let (start, next) = (self.starts.get(index)?, self.starts.get(index.checked_add(1)?)?);
        Some(*start..next - (super::frame::HEADER + FOOTER) as u64)
    }

    /// Record `index`, counted from 0, without copying it.
    ///
    /// Fails if its data is damaged, or if there are not so many.
    pub fn get(&self, index: usize) -> Result<Bytes, RecordError> {
        let Some(range) = self.range(index) else {
            let text = format!("there is no record {index}: the last is {:?}", self.len().checked_sub(1));
            return Err(RecordError::from(std::io::Error::other(text)).maybe_of(self.path.as_deref()));
        };
        let (start, end) = (range.start as usize, range.end as usize);
        let checked = check(&self.bytes[start..end + FOOTER], range.start);
        checked.map_err(|fault| RecordError::from(fault).maybe_of(self.path.as_deref()))?;
        Ok(self.bytes.slice(start..end))
    }
}
