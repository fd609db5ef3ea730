//! TFRecord, TensorFlow's files of records: reading, writing, damage, random access, many files as one.
//!
//! A record stands in its file as
//!
//! | bytes | |
//! |---|---|
//! | 8 | the length of the data, little-endian |
//! | 4 | [`masked_crc32c`] of these 8 bytes, little-endian |
//! | length | the data |
//! | 4 | [`masked_crc32c`] of the data, little-endian |
//!
//! one after the other, and the whole may be compressed (<https://www.tensorflow.org/tutorials/load_data/tfrecord>).
//!
//! | to | take |
//! |---|---|
//! | write a file | [`RecordWriter`] |
//! | write many, each with a share of the records | [`ShardedWriter`] |
//! | read a file, a pipe, a socket | [`RecordReader`] |
//! | read files after each other, or taking turns | [`RecordFiles`] |
//! | the same as a [`Dataset`](crate::data::dataset::Dataset) | [`RecordFiles::dataset`] |
//! | read a file in memory, or mapped into it, without copying | [`Records`] |
//! | read any record by its number | [`RecordIndex`] |
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

/// The bytes that are read, or inflated, at a time: TensorFlow's default.
const BLOCK: usize = 256 << 10;

/// The bytes of the longest record that a reader accepts, unless another limit is set: 268,435,456, which are 256 MiB.
///
/// A reader holds a whole record in memory, and a few kilobytes of a compressed file can be a record of any length.
pub const MAX_RECORD_BYTES: u64 = 256 << 20;
