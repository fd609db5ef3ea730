//! TFRecord, TensorFlow's format of record files: reading, writing, detection of damage, random access, and several files as one sequence.
//!
//! A file is a sequence of records:
//!
//! | bytes | |
//! |---|---|
//! | 8 | the length of the data, little-endian |
//! | 4 | [`masked_crc32c`] of these 8 bytes, little-endian |
//! | length | the data |
//! | 4 | [`masked_crc32c`] of the data, little-endian |
//!
//! The whole file may be compressed (<https://www.tensorflow.org/tutorials/load_data/tfrecord>).
//!
//! | task | type |
//! |---|---|
//! | write a file | [`RecordWriter`] |
//! | write several files, each with a part of the records | [`ShardedWriter`] |
//! | read a file, a pipe or a socket | [`RecordReader`] |
//! | read several files, one after the other or in turn | [`RecordFiles`] |
//! | read several files as a [`Dataset`](crate::data::dataset::Dataset) | [`RecordFiles::dataset`] |
//! | read a file in memory, or a memory-mapped file, without copying | [`Records`] |
//! | read single records by their number | [`RecordIndex`] |
//!
//! ```
//! use gradlet::io::tfrecord::{Compression, RecordReader, RecordWriter};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("greetings.tfrecord");
//! let mut writer = RecordWriter::create(&path, Compression::Gzip)?;
//! writer.write(b"hello")?;
//! writer.write(b"world")?;
//! writer.finish()?;
//!
//! let reader = RecordReader::open(&path, Compression::Gzip)?;
//! let records = reader.collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(records, ["hello", "world"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compression;
mod error;
mod files;
mod frame;
mod index;
mod inflate;
mod mapped;
mod reader;
mod resync;
mod shards;
mod window;
mod writer;

pub use compression::Compression;
pub use error::{Fault, RecordError};
pub use files::{RecordFiles, RecordFilesIter};
pub use frame::masked_crc32c;
pub use index::RecordIndex;
pub(crate) use inflate::Inflated;
pub use mapped::{Records, map};
pub use reader::RecordReader;
pub(crate) use resync::{find_record, is_record};
pub use shards::{ShardedWriter, shard_path};
pub use writer::RecordWriter;
pub(crate) use writer::frame;

/// Number of bytes that are read or decompressed at a time: TensorFlow's default.
const BLOCK: usize = 256 << 10;

/// Default limit of the length of a record's data: 268,435,456 bytes, which is 256 MiB.
///
/// A reader keeps a whole record in memory, and a few kilobytes of a compressed file can decompress to a record of any length.
pub const MAX_RECORD_BYTES: u64 = 256 << 20;
