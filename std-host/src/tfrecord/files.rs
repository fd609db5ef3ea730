//! Records of many files.

use super::BLOCK;
use super::compression::Compression;
use super::error::RecordError;
use super::reader::RecordReader;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The records of files, after each other or in turns: the order of TensorFlow's `TFRecordDataset`.
///
/// After damage in a file comes the next file, so whoever passes over errors gets all that can be read.
///
/// ```
/// use gradlet::tfrecord::{Compression, RecordFiles, RecordWriter};
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
}

impl RecordFiles {
    /// The records of these files, which are not compressed, after each other.
    pub fn new<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> RecordFiles {
        let paths = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
        RecordFiles { paths, compression: Compression::None, buffer_size: BLOCK, turns: 1 }
    }

    /// All files are compressed so.
    pub fn compression(self, compression: Compression) -> RecordFiles {
        RecordFiles { compression, ..self }
    }

    /// Files are read so many bytes at a time: 256 KiB unless another size is given.
    pub fn buffer_size(self, buffer_size: usize) -> RecordFiles {
        RecordFiles { buffer_size, ..self }
    }

    /// Takes a record of each of so many files in turns; when one ends, the next file takes its turns.
    pub fn num_parallel_reads(self, files: usize) -> RecordFiles {
        RecordFiles { turns: files.max(1), ..self }
    }
}

impl IntoIterator for RecordFiles {
    type Item = Result<Bytes, RecordError>;
    type IntoIter = RecordFilesIter;

    fn into_iter(self) -> RecordFilesIter {
        let turns = self.turns.min(self.paths.len());
        RecordFilesIter { waiting: self.paths.clone().into(), open: (0..turns).map(|_| None).collect(), turn: 0, files: self }
    }
}

/// The iterator of [`RecordFiles`].
pub struct RecordFilesIter {
    files: RecordFiles,
    waiting: VecDeque<PathBuf>,
    open: Vec<Option<RecordReader<File>>>,
    turn: usize,
}

impl Iterator for RecordFilesIter {
    type Item = Result<Bytes, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut idle = 0;
        while idle < self.open.len() {
            let place = &mut self.open[self.turn];
            if place.is_none()
                && let Some(path) = self.waiting.pop_front()
            {
                match RecordReader::open_with(&path, self.files.compression, self.files.buffer_size) {
                    Ok(reader) => *place = Some(reader),
                    Err(error) => return Some(Err(error)),
                }
            }
            let item = place.as_mut().and_then(Iterator::next);
            let (ended, was_open) = (!matches!(item, Some(Ok(_))), place.is_some());
            if ended {
                *place = None;
            }
            if item.is_none() || self.open.len() > 1 {
                // A place whose file has ended is taken by the next file in its next turn.
                self.turn = (self.turn + 1) % self.open.len();
            }
            if item.is_some() {
                return item;
            }
            idle = if was_open { 0 } else { idle + 1 };
        }
        None
    }
}
