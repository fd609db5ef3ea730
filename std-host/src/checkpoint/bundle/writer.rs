//! The writer of a checkpoint's tensors.

use super::crc::Crc;
use super::entry::{dtype_name, element_bytes};
use super::{data_files, data_path, index_path, items, shard_counts, table_writer};
use crate::files::{FileError, FileResult};
use crate::files::{WholeFile, remove, write_whole};
use crate::formats::proto::tensor_shape_proto::Dim;
use crate::formats::proto::{BundleEntryProto, BundleHeaderProto, DataType, TensorShapeProto, VersionDef};
use crate::values::strings::Strings;
use prost::Message;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Size, in bytes, of the pieces that are written at a time. A piece is still in the CPU's cache when it is written after its
/// checksum was computed.
const PIECE: usize = 256 << 10;
/// Minimum total size of tensors, in bytes, that two threads write to two data files.
const LARGE: usize = 64 << 20;

/// Writer of a checkpoint. It appends tensors to a data file, and writes the index in [`finish`](BundleWriter::finish).
///
/// The files are the same as TensorFlow's, byte for byte. An existing checkpoint with this prefix stays intact until `finish`
/// replaces it, even after an interruption. A writer that is dropped before `finish` leaves no files.
///
/// The replacement is a single step: the renaming of the index. The index and the names of the data files state the number of data
/// files. If there are old data files, the new ones are therefore named with a different number. The old files are deleted once no
/// index refers to them.
pub struct BundleWriter {
    prefix: PathBuf,
    data: Vec<Data>,
    entries: BTreeMap<String, BundleEntryProto>,
}

/// A tensor to write, with elements in row-major order, little-endian.
#[derive(Clone, Copy, Debug)]
pub struct NewTensor<'a> {
    /// Name of the tensor.
    pub key: &'a str,
    /// TensorFlow's element type.
    pub dtype: DataType,
    /// The dimensions, outermost first.
    pub dims: &'a [u64],
    /// The elements.
    pub bytes: &'a [u8],
}

/// A data file and the number of bytes written to it.
struct Data {
    file: WholeFile,
    length: u64,
    /// True if a write failed. The contents of the file are then unknown.
    failed: bool,
}

impl Data {
    /// Appends bytes. Returns their offset and their masked checksum.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<(u64, u32)> {
        let mut crc = Crc::new();
        for piece in bytes.chunks(PIECE) {
            crc.update(piece);
            self.file.write_all(piece).inspect_err(|_| self.failed = true)?;
        }
        let start = self.length;
        self.length += bytes.len() as u64;
        Ok((start, crc.masked()))
    }
}

impl BundleWriter {
    /// Creates a writer for a checkpoint. Fails if the folder does not exist or is not writable.
    pub fn create(prefix: &Path) -> FileResult<BundleWriter> {
        let mut writer = BundleWriter { prefix: prefix.into(), data: Vec::new(), entries: BTreeMap::new() };
        writer.add_file()?;
        Ok(writer)
    }

    fn add_file(&mut self) -> FileResult<()> {
        let count = self.data.len() as u32 + 1;
        let file = WholeFile::create(&data_path(&self.prefix, count - 1, count))?;
        self.data.push(Data { file, length: 0, failed: false });
        Ok(())
    }

    /// Writes a tensor with elements in row-major order, little-endian. The bytes are not buffered.
    ///
    /// Fails if `key` is empty, begins with a zero byte or is already in use. Fails if the number of bytes does not match the
    /// shape, or if the file cannot be written.
    pub fn tensor(&mut self, key: &str, dtype: DataType, dims: &[u64], bytes: &[u8]) -> FileResult<()> {
        let tensor = NewTensor { key, dtype, dims, bytes };
        self.check(&tensor)?;
        let written = self.data[0].write(bytes).map_err(|error| self.io(error))?;
        self.add(&tensor, 0, written)
    }

    /// Writes many tensors. If they have 64 MiB or more together, two threads write them to two data files, which halves the time.
    /// Fails in the same cases as [`tensor`](BundleWriter::tensor).
    pub fn tensors(&mut self, tensors: &[NewTensor<'_>]) -> FileResult<()> {
        if tensors.iter().map(|tensor| tensor.bytes.len()).sum::<usize>() < LARGE {
            return tensors.iter().try_for_each(|tensor| self.tensor(tensor.key, tensor.dtype, tensor.dims, tensor.bytes));
        }
        tensors.iter().try_for_each(|tensor| self.check(tensor))?;
        if self.data.len() == 1 {
            self.add_file()?;
        }
        let mut shares = [Vec::new(), Vec::new()];
        let mut loads = [0, 1].map(|file| self.data[file].length);
        for tensor in tensors {
            let file = usize::from(loads[1] < loads[0]);
            loads[file] += tensor.bytes.len() as u64;
            shares[file].push(tensor);
        }
        let write = |data: &mut Data, share: &[&NewTensor<'_>]| share.iter().map(|tensor| data.write(tensor.bytes)).collect();
        let [first, second] = self.data.as_mut_slice() else { unreachable!("there are two files") };
        let written: [std::io::Result<Vec<(u64, u32)>>; 2] = std::thread::scope(|threads| {
            let second = threads.spawn(|| write(second, &shares[1]));
            let first = write(first, &shares[0]);
            [first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))]
        });
        for (file, (written, share)) in written.into_iter().zip(&shares).enumerate() {
            let written = written.map_err(|error| self.io(error))?;
            share.iter().zip(written).try_for_each(|(tensor, written)| self.add(tensor, file, written))?;
        }
        Ok(())
    }

    /// Writes strings. Fails in the same cases as [`tensor`](BundleWriter::tensor).
    pub fn strings(&mut self, key: &str, strings: &Strings) -> FileResult<()> {
        self.check_name(key)?;
        let (stored, crc) = items::strings_to_bytes(strings);
        let (start, _) = self.data[0].write(&stored).map_err(|error| self.io(error))?;
        let dims: Vec<u64> = strings.dims().iter().map(|&dim| dim.into()).collect();
        self.add(&NewTensor { key, dtype: DataType::DtString, dims: &dims, bytes: &stored }, 0, (start, crc))
    }

    /// Completes the checkpoint. When all of its data is on the disk, the index replaces the previous one. Then the data files of
    /// the previous checkpoint are deleted.
    pub fn finish(self) -> FileResult<()> {
        if self.data.iter().any(|data| data.failed) {
            return Err(self.error("a tensor could not be written, so the checkpoint is incomplete".into()));
        }
        let taken = if index_path(&self.prefix).exists() { shard_counts(&self.prefix) } else { Default::default() };
        let shards = (self.data.len() as u32..).find(|count| !taken.contains(count)).unwrap_or(1);
        for (shard, data) in self.data.into_iter().enumerate() {
            data.file.finish_as(&data_path(&self.prefix, shard as u32, shards))?;
        }
        let version = Some(VersionDef { producer: 1, min_consumer: 0, bad_consumers: Vec::new() });
        let header = BundleHeaderProto { num_shards: shards as i32, endianness: 0, version };
        let entries = self.entries.into_iter().map(|(key, entry)| (key, entry.encode_to_vec()));
        let records = std::iter::once((String::new(), header.encode_to_vec())).chain(entries);
        write_whole(&index_path(&self.prefix), &table_writer::table(records))?;
        let old: Vec<PathBuf> = data_files(&self.prefix).into_iter().filter(|(_, count)| *count != shards).map(|(path, _)| path).collect();
        // The checkpoint is complete. A file that cannot be deleted is left to the next save. Large files take long to delete, so
        // each has a thread.
        std::thread::scope(|threads| {
            let Some((last, others)) = old.split_last() else { return };
            for path in others {
                threads.spawn(|| drop(remove(path)));
            }
            drop(remove(last));
        });
        Ok(())
    }

    fn error(&self, text: String) -> FileError {
        FileError::new(&index_path(&self.prefix), text)
    }

    fn io(&self, error: std::io::Error) -> FileError {
        FileError::io(&data_path(&self.prefix, 0, self.data.len() as u32), error)
    }

    fn check(&self, tensor: &NewTensor<'_>) -> FileResult<()> {
        let NewTensor { key, dtype, dims, bytes } = tensor;
        let elements = dims.iter().try_fold(1u64, |all, &dim| all.checked_mul(dim));
        let wanted = elements.zip(element_bytes(*dtype)).and_then(|(elements, size)| elements.checked_mul(size as u64));
        if wanted != Some(bytes.len() as u64) {
            return Err(self.error(format!("tensor {key:?}: {} bytes are not the size of {}{dims:?}", bytes.len(), dtype_name(*dtype))));
        }
        self.check_name(key)
    }

    fn check_name(&self, key: &str) -> FileResult<()> {
        if key.is_empty() || key.starts_with('\0') {
            return Err(self.error(format!("{key:?} cannot be the name of a tensor: a name must not be empty or begin with a zero byte")));
        }
        match self.entries.contains_key(key) {
            true => Err(self.error(format!("there are two tensors {key:?}"))),
            false => Ok(()),
        }
    }

    fn add(&mut self, tensor: &NewTensor<'_>, file: usize, (offset, crc32c): (u64, u32)) -> FileResult<()> {
        let NewTensor { key, dtype, dims, bytes } = tensor;
        let dim = dims.iter().map(|&size| i64::try_from(size).map(|size| Dim { size, name: String::new() }));
        let dim = dim.collect::<Result<Vec<_>, _>>();
        let dim = dim.map_err(|_| self.error(format!("tensor {key:?} has a dimension of 2^63 or more")))?;
        let entry = BundleEntryProto {
            dtype: (*dtype).into(),
            shape: Some(TensorShapeProto { dim, unknown_rank: false }),
            shard_id: file as i32,
            offset: offset as i64,
            size: bytes.len() as i64,
            crc32c,
            slices: Vec::new(),
        };
        match self.entries.insert(key.to_string(), entry) {
            Some(_) => Err(self.error(format!("there are two tensors {key:?}"))),
            None => Ok(()),
        }
    }
}
