//! Errors of record files.

use super::compression::Compression;
use super::frame::{HEADER, masked_crc32c, stored_crc};
use crate::files::FileError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Error of a file or stream of records, with the file, the cause and the position.
///
/// Example: `data/a.tfrecord: corrupted record at 56: its 50 bytes make the checksum 0x1dbb5d1e, but 0x1dbb5d1f is stored after them`. The
/// `?` operator converts it to a [`gradlet_core::Error`] with the same text.
pub struct RecordError(Box<Inner>);

struct Inner {
    path: Option<PathBuf>,
    fault: Fault,
}

/// Cause of an error of a file or stream of records. Offsets are bytes of the uncompressed stream.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The length of the record at `offset` is damaged, or no record begins there.
    Length {
        /// Start of the record.
        offset: u64,
        /// Bytes at that position: a length and its checksum.
        header: [u8; HEADER],
    },
    /// The data at `offset`, or its checksum, is damaged.
    Data {
        /// Start of the data, 12 bytes after the start of the record.
        offset: u64,
        /// Length of the data.
        length: u64,
        /// Checksum stored after the data.
        stored: u32,
        /// Checksum computed from the data.
        computed: u32,
    },
    /// The stream ends within the record at `offset`, after its length.
    Truncated {
        /// Start of the record.
        offset: u64,
        /// Length of the data.
        length: u64,
        /// Number of bytes that the stream has of the data and its checksum.
        there: u64,
    },
    /// The record at `offset` is longer than the reader accepts.
    TooLong {
        /// Start of the record.
        offset: u64,
        /// Length of the data.
        length: u64,
        /// Maximum length that the reader accepts.
        limit: u64,
    },
    /// The compressed stream is damaged, or the file is not compressed in this way.
    Inflate {
        /// Approximate position in the compressed file.
        offset: u64,
        /// Message of zlib.
        text: String,
        /// Compression that the reader expects.
        compression: Compression,
        /// Compression that the first bytes of the file indicate.
        begins: Compression,
    },
    /// Error of the operating system.
    Io(io::Error),
    /// The file could not be written.
    File(FileError),
}

impl RecordError {
    /// Adds the path of the file.
    pub(super) fn of(mut self, path: &Path) -> RecordError {
        self.0.path = Some(path.into());
        self
    }

    /// Adds the path of the file, if there is one.
    pub(super) fn maybe_of(self, path: Option<&Path>) -> RecordError {
        match path {
            Some(path) => self.of(path),
            None => self,
        }
    }

    /// Returns the cause of the error.
    pub fn fault(&self) -> &Fault {
        &self.0.fault
    }

    /// Returns the path of the file, if the records belong to a file.
    pub fn path(&self) -> Option<&Path> {
        match &self.0.fault {
            Fault::File(error) => Some(error.path()),
            _ => self.0.path.as_deref(),
        }
    }

    /// Returns the position that TensorFlow also reports: the start of a record or of its data, in bytes of the uncompressed stream.
    /// `None` for damaged compression and for errors of the system.
    pub fn offset(&self) -> Option<u64> {
        match self.0.fault {
            Fault::Length { offset, .. } | Fault::Data { offset, .. } | Fault::Truncated { offset, .. } | Fault::TooLong { offset, .. } => {
                Some(offset)
            }
            Fault::Inflate { .. } | Fault::Io(_) | Fault::File(_) => None,
        }
    }

    /// True if the content is damaged (TensorFlow's `DataLossError`). False if a file could not be opened, read or written, or if a record
    /// is longer than the reader accepts.
    pub fn is_data_loss(&self) -> bool {
        !matches!(self.0.fault, Fault::TooLong { .. } | Fault::Io(_) | Fault::File(_))
    }
}

impl From<Fault> for RecordError {
    fn from(fault: Fault) -> RecordError {
        RecordError(Box::new(Inner { path: None, fault }))
    }
}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> RecordError {
        Fault::Io(error).into()
    }
}

impl From<FileError> for RecordError {
    fn from(error: FileError) -> RecordError {
        Fault::File(error).into()
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.0.path {
            write!(f, "{}: ", path.display())?;
        }
        self.0.fault.fmt(f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Length { offset, header } => {
                write!(f, "corrupted record at {offset}: ")?;
                match Compression::of(header) {
                    _ if *offset > 0 => (),
                    Compression::None => write!(f, "is this a TFRecord file? ")?,
                    compression => return write!(f, "the file begins like a compressed file: read it as {compression}"),
                }
                let (length, stored) = header.split_at(8);
                let (computed, stored) = (masked_crc32c(length), stored_crc(stored));
                write!(
                    f,
                    "the 8 bytes of its length make the checksum {computed:#010x}, \
                 but {stored:#010x} is stored after them"
                )
            }
            Fault::Data { offset, length, stored, computed } => write!(
                f,
                "corrupted record at {offset}: its {length} bytes make the checksum {computed:#010x}, \
                 but {stored:#010x} is stored after them"
            ),
            Fault::Truncated { offset, length, there } => write!(
                f,
                "truncated record at {offset}: {length} bytes of data and 4 of checksum should follow its length, \
                 but the file has {there} more"
            ),
            Fault::TooLong { offset, length, limit } => write!(
                f,
                "the record at {offset} has {length} bytes of data, which is more than the limit of {limit}: max_record_bytes() of \
                 RecordReader and RecordFiles, or the option --max-record-bytes, sets another limit"
            ),
            Fault::Inflate { offset, text, compression, begins } => {
                write!(f, "{compression} data damaged near byte {offset} of the compressed file: {text}")?;
                match begins {
                    begins if *offset > 0 || begins == compression => Ok(()),
                    begins => write!(f, "; the file begins like one with compression {begins}"),
                }
            }
            Fault::Io(error) => error.fmt(f),
            Fault::File(error) => error.fmt(f),
        }
    }
}

/// Same text as `Display`, because `main` and `unwrap` print the `Debug` form.
impl fmt::Debug for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for RecordError {}

impl From<RecordError> for gradlet_core::Error {
    fn from(error: RecordError) -> gradlet_core::Error {
        gradlet_core::Error::message(error.to_string())
    }
}
