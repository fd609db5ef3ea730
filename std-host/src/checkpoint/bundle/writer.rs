//! Writing a checkpoint's tensors by name.

use super::crc::Crc;
use super::entry::{dtype_name, element_bytes};
use super::{data_files, data_path, index_path, items, shard_counts, table_writer};
use crate::file_error::{FileError, FileResult};
use crate::files::{WholeFile, remove};
use crate::proto::tensor_shape_proto::Dim;
use crate::proto::{BundleEntryProto, BundleHeaderProto, DataType, TensorShapeProto, VersionDef};
use crate::strings::Strings;
use prost::Message;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What is checked and written while the cache has it.
const PIECE: usize = 1 << 20;

/// A checkpoint that is written: the tensors one after another to a data file, in [`finish`](BundleWriter::finish) the index.
///
/// The files are TensorFlow's, byte for byte. Until `finish`, and wherever it is interrupted, a checkpoint that already has this
/// prefix stays as it was; one that is dropped before leaves nothing. The new one is put in its place by a single step: the index is
/// renamed. As it says how many data files there are, and their names say that too, the new data file is number 0 of more than the
/// old ones are, where there are old ones: they go away once no index needs them.
pub struct BundleWriter {
    prefix: PathBuf,
    data: WholeFile,
    shards: u32,
    offset: u64,
    entries: BTreeMap<String, BundleEntryProto>,
}

impl BundleWriter {
    /// Begins to write a checkpoint. Fails where the folder does not exist or cannot be written to.
    pub fn create(prefix: &Path) -> FileResult<BundleWriter> {
        let taken = if index_path(prefix).exists() { shard_counts(prefix) } else { Default::default() };
        let shards = (1..).find(|count| !taken.contains(count)).unwrap_or(1);
        let data = WholeFile::create(&data_path(prefix, 0, shards))?;
        Ok(BundleWriter { prefix: prefix.into(), data, shards, offset: 0, entries: BTreeMap::new() })
    }

    /// Writes a tensor: its elements in row-major order, little-endian. They go straight from `bytes` to the file.
    ///
    /// Fails where `key` is empty, begins with a byte of 0 or is there already, where `bytes` are not as many as the elements need,
    /// and where the file cannot be written.
    pub fn tensor(&mut self, key: &str, dtype: DataType, dims: &[u64], bytes: &[u8]) -> FileResult<()> {
        let elements = dims.iter().try_fold(1u64, |all, &dim| all.checked_mul(dim));
        let wanted = elements.zip(element_bytes(dtype)).and_then(|(elements, size)| elements.checked_mul(size as u64));
        if wanted != Some(bytes.len() as u64) {
            return Err(self.error(format!("tensor {key:?}: {} bytes do not make {}{dims:?}", bytes.len(), dtype_name(dtype))));
        }
        self.check(key)?;
        let mut crc = Crc::new();
        for piece in bytes.chunks(PIECE) {
            crc.update(piece);
            self.data.write_all(piece).map_err(|error| FileError::io(&self.data_path(), error))?;
        }
        self.add(key, dtype, dims.iter().copied(), bytes.len(), crc.masked())
    }

    /// Writes strings. Fails as [`tensor`](BundleWriter::tensor).
    pub fn strings(&mut self, key: &str, strings: &Strings) -> FileResult<()> {
        self.check(key)?;
        let (stored, crc) = items::strings_to_bytes(strings);
        self.data.write_all(&stored).map_err(|error| FileError::io(&self.data_path(), error))?;
        self.add(key, DataType::DtString, strings.dims().iter().map(|&dim| dim.into()), stored.len(), crc)
    }

    /// Puts the checkpoint in its place, once all of it is safely on the disk; then deletes the data of the one that was there.
    pub fn finish(self) -> FileResult<()> {
        let data_path = self.data_path();
        self.data.finish()?;
        let version = Some(VersionDef { producer: 1, min_consumer: 0, bad_consumers: Vec::new() });
        let header = BundleHeaderProto { num_shards: self.shards as i32, endianness: 0, version };
        let entries = self.entries.into_iter().map(|(key, entry)| (key, entry.encode_to_vec()));
        let records = std::iter::once((String::new(), header.encode_to_vec())).chain(entries);
        let mut index = WholeFile::create(&index_path(&self.prefix))?;
        let table = table_writer::table(records);
        index.write_all(&table).map_err(|error| FileError::io(&index_path(&self.prefix), error))?;
        index.finish()?;
        let old = data_files(&self.prefix).into_iter().filter(|(path, _)| path.file_name() != data_path.file_name());
        // The checkpoint is there; a file that cannot be deleted is left to the next one.
        old.for_each(|(path, _)| drop(remove(&path)));
        Ok(())
    }

    fn data_path(&self) -> PathBuf {
        data_path(&self.prefix, 0, self.shards)
    }

    fn error(&self, text: String) -> FileError {
        FileError::new(&index_path(&self.prefix), text)
    }

    fn check(&self, key: &str) -> FileResult<()> {
        if key.is_empty() || key.starts_with('\0') {
            return Err(self.error(format!("{key:?} cannot be the name of a tensor")));
        }
        match self.entries.contains_key(key) {
            true => Err(self.error(format!("there are two tensors {key:?}"))),
            false => Ok(()),
        }
    }

    fn add(&mut self, key: &str, dtype: DataType, dims: impl Iterator<Item = u64>, size: usize, crc32c: u32) -> FileResult<()> {
        let dim = dims.map(|size| i64::try_from(size).map(|size| Dim { size, name: String::new() })).collect::<Result<Vec<_>, _>>();
        let dim = dim.map_err(|_| self.error(format!("tensor {key:?} has a dimension of 2^63 or more")))?;
        let shape = Some(TensorShapeProto { dim, unknown_rank: false });
        let (offset, size) = (self.offset as i64, size as i64);
        let entry = BundleEntryProto { dtype: dtype.into(), shape, shard_id: 0, offset, size, crc32c, slices: Vec::new() };
        self.offset += size as u64;
        self.entries.insert(key.into(), entry);
        Ok(())
    }
}
