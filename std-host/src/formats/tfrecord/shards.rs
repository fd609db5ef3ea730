//! Records distributed over several files.

use super::compression::Compression;
use super::error::RecordError;
use super::writer::RecordWriter;
use crate::files::WholeFile;
use std::path::{Path, PathBuf};

/// Returns the path of shard `index` of `count`: `digits-00002-of-00010.tfrecord` for the prefix `digits`.
pub fn shard_path(prefix: &Path, index: usize, count: usize) -> PathBuf {
    let mut path = prefix.as_os_str().to_os_string();
    path.push(format!("-{index:05}-of-{count:05}.tfrecord"));
    path.into()
}

/// Writes records to several files in turn. Record i is written to file i modulo the number of files.
///
/// ```
/// use gradlet::io::tfrecord::{Compression, RecordFiles, ShardedWriter};
///
/// let folder = tempfile::tempdir()?;
/// let mut writer = ShardedWriter::create(&folder.path().join("digits"), 4, Compression::None)?;
/// (0..10u8).try_for_each(|digit| writer.write(&[digit]))?;
/// let paths = writer.finish()?;
/// assert!(paths[3].ends_with("digits-00003-of-00004.tfrecord"));
///
/// // If the files are read in turn, the records are in their original order.
/// let records = RecordFiles::new(&paths).num_parallel_reads(4).into_iter();
/// let digits = records.map(|record| Ok(record?[0])).collect::<gradlet::Result<Vec<_>>>()?;
/// assert_eq!(digits, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ShardedWriter {
    writers: Vec<RecordWriter<WholeFile>>,
    paths: Vec<PathBuf>,
    next: usize,
}

impl ShardedWriter {
    /// Creates `count` files, at least one, with the paths of [`shard_path`]. Fails if they cannot be written.
    pub fn create(prefix: &Path, count: usize, compression: Compression) -> Result<ShardedWriter, RecordError> {
        let count = count.max(1);
        let paths: Vec<PathBuf> = (0..count).map(|index| shard_path(prefix, index, count)).collect();
        let writers = paths.iter().map(|path| RecordWriter::create(path, compression)).collect::<Result<_, _>>()?;
        Ok(ShardedWriter { writers, paths, next: 0 })
    }

    /// Writes a record to the file whose turn it is.
    pub fn write(&mut self, record: &[u8]) -> Result<(), RecordError> {
        self.writers[self.next].write(record)?;
        self.next = (self.next + 1) % self.writers.len();
        Ok(())
    }

    /// Completes all files and moves them to their final paths, which it returns. No file is moved before all are written to the disk.
    pub fn finish(self) -> Result<Vec<PathBuf>, RecordError> {
        let files = self.writers.into_iter().map(RecordWriter::into_inner).collect::<Result<Vec<_>, _>>()?;
        for file in files {
            file.finish()?;
        }
        Ok(self.paths)
    }
}
