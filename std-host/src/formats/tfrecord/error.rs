//! What can be wrong with records.

use super::compression::Compression;
use super::frame::{HEADER, masked_crc32c, stored_crc};
use crate::files::FileError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error of a file or stream of records: which file, what is wrong, and where.
///
/// `data/a.tfrecord: corrupted record at 56: its 50 bytes make the checksum 0x1dbb5d1e, but 0x1dbb5d1f is stored after them`.
/// It becomes a [`gradlet_core::Error`] of the same words where `?` needs one.
#[derive(Debug)]
pub struct RecordError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    fault: Fault,
}

/// What is wrong with a file or stream of records. Offsets count bytes of the uncompressed stream.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The length of the record that begins at `offset` is damaged, or no record begins there.
    Length {
        /// Where the record begins.
        offset: u64,
        /// The bytes there: a length and its checksum.
        header: [u8; HEADER],
    },
    /// The data that begins at `offset` is damaged, or its checksum is.
    Data {
        /// Where the data begins: 12 bytes after the record does.
        offset: u64,
        /// Its length.
        length: u64,
        /// The checksum that is stored after it.
        stored: u32,
        /// The checksum that it makes.
        computed: u32,
    },
    /// The stream ends within the record that begins at `offset`, after its length.
    Truncated {
        /// Where the record begins.
        offset: u64,
        /// The length of its data.
        length: u64,
        /// How many bytes of data and checksum are there.
        there: u64,
    },
    /// The record that begins at `offset` is longer than the reader accepts.
    TooLong {
        /// Where the record begins.
        offset: u64,
        /// The length of its data.
        length: u64,
        /// The longest that is accepted.
        limit: u64,
    },
    /// The compressed stream is damaged, or is none.
    Inflate {
        /// About where in the compressed file.
        offset: u64,
        /// What zlib says.
        text: String,
        /// How the file was to be inflated.
        compression: Compression,
        /// How it begins.
        begins: Compression,
    },
    /// What the operating system said.
    Io(io::Error),
    /// The file could not be written.
    File(FileError),
}

impl RecordError {
    /// The same, of the file at `path`.
    pub(super) fn of(mut self, path: &Path) -> RecordError {
        self.0.path = Some(path.into());
        self
    }

    /// The same, of the file at `path` if there is one.
    pub(super) fn maybe_of(self, path: Option<&Path>) -> RecordError {
        match path {
            Some(path) => self.of(path),
            None => self,
        }
    }

    /// What is wrong.
    pub fn fault(&self) -> &Fault {
        &self.0.fault
    }

    /// The file, where the records come from a file or go to one.
    pub fn path(&self) -> Option<&Path> {
        match &self.0.fault {
            Fault::File(error) => Some(error.path()),
            _ => self.0.path.as_deref(),
        }
    }

    /// The byte of the uncompressed stream that TensorFlow names too: where a record begins, or its data.
    pub fn offset(&self) -> Option<u64> {
        match self.0.fault {
            Fault::Length { offset, .. } | Fault::Data { offset, .. } | Fault::Truncated { offset, .. } | Fault::TooLong { offset, .. } => {
                Some(offset)
            }
            Fault::Inflate { .. } | Fault::Io(_) | Fault::File(_) => None,
        }
    }

    /// True if the content is damaged (TensorFlow's `DataLossError`), false if a file could not be opened, read or written, or has a
    /// record that is longer than the reader accepts.
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
                    compression => return write!(f, "the file begins as one that is compressed does: read it as {compression}"),
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
                "the record at {offset} has {length} bytes of data, but {limit} are the most that are accepted: max_record_bytes() of \
                 RecordReader and RecordFiles, and --max-record-bytes of the command, set another limit"
            ),
            Fault::Inflate { offset, text, compression, begins } => {
                write!(f, "{compression} data damaged near byte {offset} of the compressed file: {text}")?;
                match begins {
                    begins if *offset > 0 || begins == compression => Ok(()),
                    begins => write!(f, "; the file begins as one with compression {begins} does"),
                }
            }
            Fault::Io(error) => error.fmt(f),
            Fault::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<RecordError> for gradlet_core::Error {
    fn from(error: RecordError) -> gradlet_core::Error {
        gradlet_core::Error::message(error.to_string())
    }
}
