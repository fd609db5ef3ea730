//! Records of several files.

use super::compression::Compression;
use super::error::RecordError;
use super::mapped::Records;
use super::reader::RecordReader;
use super::{BLOCK, MAX_RECORD_BYTES};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Records of several files: one file after the other, or one record of each file in turn. The order is that of TensorFlow's
/// `TFRecordDataset`.
///
/// After damage in a file, reading continues with the next file. A caller that skips errors thus receives all readable records.
///
/// ```
/// use gradlet::io::tfrecord::{Compression, RecordFiles, RecordWriter};
///
/// let folder = tempfile::tempdir()?;
/// let paths = ["a", "b"].map(|name| folder.path().join(name));
/// for path in &paths {
///     let mut writer = RecordWriter::create(path, Compression::None)?;
///     writer.write(b"first")?;
///     writer.write(b"second")?;
///     writer.finish()?;
/// }
/// let all = |files: RecordFiles| files.into_iter().collect::<Result<Vec<_>, _>>();
/// assert_eq!(all(RecordFiles::new(&paths))?, ["first", "second", "first", "second"]);
/// assert_eq!(all(RecordFiles::new(&paths).num_parallel_reads(2))?, ["first", "first", "second", "second"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RecordFiles {
    paths: Vec<PathBuf>,
    compression: Compression,
    buffer_size: usize,
    turns: usize,
    mapped: bool,
    limit: u64,
}

impl RecordFiles {
    /// Creates an iterable over the records of uncompressed files, one file after the other.
    pub fn new<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> RecordFiles {
        let paths = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
        let compression = Compression::None;
        RecordFiles { paths, compression, buffer_size: BLOCK, turns: 1, mapped: false, limit: MAX_RECORD_BYTES }
    }

    /// Sets the compression of all files.
    pub fn compression(self, compression: Compression) -> RecordFiles {
        RecordFiles { compression, ..self }
    }

    /// Sets the number of bytes that are read at a time. The default is 256 KiB.
    pub fn buffer_size(self, buffer_size: usize) -> RecordFiles {
        RecordFiles { buffer_size, ..self }
    }

    /// Sets the maximum length of a record's data in bytes. The default is [`MAX_RECORD_BYTES`]. A longer record is an error.
    /// [Mapped](RecordFiles::memory_mapped) files have no limit, because their records are not copied to memory.
    pub fn max_record_bytes(self, limit: u64) -> RecordFiles {
        RecordFiles { limit, ..self }
    }

    /// Reads one record of each of `files` files in turn. When a file ends, the next one takes its place.
    pub fn num_parallel_reads(self, files: usize) -> RecordFiles {
        RecordFiles { turns: files.max(1), ..self }
    }

    /// Maps uncompressed files into memory, and returns their records without copying them. This is faster, but the files must not change
    /// meanwhile: see [`map`](super::map). Each record keeps its file mapped.
    pub fn memory_mapped(self) -> RecordFiles {
        RecordFiles { mapped: true, ..self }
    }

    fn open(&self, path: &Path) -> Result<Open, RecordError> {
        Ok(match self.mapped && self.compression == Compression::None {
            true => Open::Mapped(Records::open(path)?),
            false => {
                let reader = RecordReader::open_with(path, self.compression, self.buffer_size)?;
                Open::Read(reader.max_record_bytes(self.limit))
            }
        })
    }

    /// Returns the paths of the files, in the order in which they are read.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns the number of files that are read in turn; 1 if they are read one after the other.
    pub(crate) fn turns(&self) -> usize {
        self.turns.min(self.paths.len())
    }

    /// True if several compressed files are read in turn, so that decompression on several threads helps.
    pub(crate) fn inflates_in_turns(&self) -> bool {
        self.compression != Compression::None && self.turns() > 1
    }

    /// Returns the same settings for a single file.
    pub(crate) fn only(self, path: PathBuf) -> RecordFiles {
        RecordFiles { paths: vec![path], ..self }
    }
}

impl IntoIterator for RecordFiles {
    type Item = Result<Bytes, RecordError>;
    type IntoIter = RecordFilesIter;

    fn into_iter(self) -> RecordFilesIter {
        RecordFilesIter { waiting: self.paths.clone().into(), open: (0..self.turns()).map(|_| None).collect(), turn: 0, files: self }
    }
}

/// Open file.
enum Open {
    Read(RecordReader<File>),
    Mapped(Records),
}

impl Open {
    fn next(&mut self) -> Option<Result<Bytes, RecordError>> {
        match self {
            Open::Read(reader) => reader.next(),
            Open::Mapped(records) => records.next(),
        }
    }

    /// Reads and checks the next record without copying it. Returns `None` at the end of the file.
    fn pass(&mut self) -> Option<Result<(), RecordError>> {
        match self {
            Open::Read(reader) => Some(reader.next_record()?.map(drop)),
            Open::Mapped(records) => Some(records.next()?.map(drop)),
        }
    }
}

/// Iterator of [`RecordFiles`].
pub struct RecordFilesIter {
    files: RecordFiles,
    waiting: VecDeque<PathBuf>,
    open: Vec<Option<Open>>,
    turn: usize,
}

impl RecordFilesIter {
    /// Returns the next item, or `None` after the last file. `take` reads the item from the file whose turn it is.
    fn step<T>(&mut self, take: impl Fn(&mut Open) -> Option<Result<T, RecordError>>) -> Option<Result<T, RecordError>> {
        let mut idle = 0;
        while idle < self.open.len() {
            let place = &mut self.open[self.turn];
            if place.is_none()
                && let Some(path) = self.waiting.pop_front()
            {
                match self.files.open(&path) {
                    Ok(file) => *place = Some(file),
                    Err(error) => return Some(Err(error)),
                }
            }
            idle = if place.is_some() { 0 } else { idle + 1 };
            let item = place.as_mut().and_then(&take);
            if !matches!(item, Some(Ok(_))) {
                *place = None;
            }
            // The next file takes the place of one that has ended, when it is the turn of that slot again.
            self.turn = (self.turn + 1) % self.open.len();
            if item.is_some() {
                return item;
            }
        }
        None
    }
}

impl Iterator for RecordFilesIter {
    type Item = Result<Bytes, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Open::next)
    }

    /// Skips `n` items. Skipped records are checked, but not copied.
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        for _ in 0..n {
            // An error also counts as an item.
            let _ = self.step(Open::pass)?;
        }
        self.next()
    }
}
