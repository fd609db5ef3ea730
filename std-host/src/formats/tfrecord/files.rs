//! Records of many files.

use super::compression::Compression;
use super::error::RecordError;
use super::mapped::Records;
use super::reader::RecordReader;
use super::{BLOCK, MAX_RECORD_BYTES};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The records of files, after each other or in turns: the order of TensorFlow's `TFRecordDataset`.
///
/// After damage in a file comes the next file, so whoever passes over errors gets all that can be read.
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
    /// The records of these files, which are not compressed, after each other.
    pub fn new<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> RecordFiles {
        let paths = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
        let compression = Compression::None;
        RecordFiles { paths, compression, buffer_size: BLOCK, turns: 1, mapped: false, limit: MAX_RECORD_BYTES }
    }

    /// All files are compressed so.
    pub fn compression(self, compression: Compression) -> RecordFiles {
        RecordFiles { compression, ..self }
    }

    /// Files are read so many bytes at a time: 256 KiB unless another size is given.
    pub fn buffer_size(self, buffer_size: usize) -> RecordFiles {
        RecordFiles { buffer_size, ..self }
    }

    /// The bytes of data that a record has at most, [`MAX_RECORD_BYTES`] unless another limit is given. A longer one is an error; in files
    /// that are [mapped](RecordFiles::memory_mapped), where a record costs no memory, any length is accepted.
    pub fn max_record_bytes(self, limit: u64) -> RecordFiles {
        RecordFiles { limit, ..self }
    }

    /// Takes a record of each of so many files in turns; when one ends, the next file takes its turns.
    pub fn num_parallel_reads(self, files: usize) -> RecordFiles {
        RecordFiles { turns: files.max(1), ..self }
    }

    /// Maps files that are not compressed into memory, and takes the records there without copying them: faster, if the files do not
    /// change meanwhile. See [`map`](super::map) for what happens if they do. Each record keeps its file mapped.
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

    /// The files, in the order of their turns.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// How many files take turns.
    pub(crate) fn turns(&self) -> usize {
        self.turns.min(self.paths.len())
    }

    /// True if threads would help: compressed files take turns.
    pub(crate) fn inflates_in_turns(&self) -> bool {
        self.compression != Compression::None && self.turns() > 1
    }

    /// The same way of reading, for one file.
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

/// A file whose turn it can be.
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

    /// Checks a record without copying it.
    fn pass(&mut self) -> Option<Result<(), RecordError>> {
        match self {
            Open::Read(reader) => Some(reader.next_record()?.map(drop)),
            Open::Mapped(records) => Some(records.next()?.map(drop)),
        }
    }
}

/// The iterator of [`RecordFiles`].
pub struct RecordFilesIter {
    files: RecordFiles,
    waiting: VecDeque<PathBuf>,
    open: Vec<Option<Open>>,
    turn: usize,
}

impl RecordFilesIter {
    /// The next item, as `take` has it from the file whose turn it is.
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
            // A place whose file has ended is taken by the next file in its next turn.
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

    /// Passes over `n` items. Records are checked, but not copied.
    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        for _ in 0..n {
            // An error is an item, too.
            let _ = self.step(Open::pass)?;
        }
        self.next()
    }
}
