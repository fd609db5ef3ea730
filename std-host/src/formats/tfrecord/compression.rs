//! Compression of record files.

use super::error::RecordError;
use super::frame::{HEADER, length};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Compression of a file of records. The file is compressed as a whole, not record by record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Gzip (RFC 1952). Files of several concatenated streams are read to the end.
    Gzip,
    /// Zlib (RFC 1950).
    Zlib,
}

impl Compression {
    /// Detects the compression of the file at `path` from its first bytes. If they are neither a record nor a compressed stream, returns
    /// [`Compression::None`].
    ///
    /// Fails if the file cannot be read.
    pub fn detect(path: &Path) -> Result<Compression, RecordError> {
        let mut begin = Vec::new();
        let read = File::open(path).and_then(|file| file.take(HEADER as u64).read_to_end(&mut begin));
        read.map_err(|error| RecordError::from(error).of(path))?;
        Ok(Compression::of(&begin))
    }

    /// Detects the compression of a file from its first bytes.
    pub(super) fn of(begin: &[u8]) -> Compression {
        match begin {
            _ if begin.first_chunk().is_some_and(|header| length(header, 0).is_ok()) => Compression::None,
            [0x1f, 0x8b, ..] => Compression::Gzip,
            // Deflate with a window of at most 32 KiB. The first two bytes are a multiple of 31.
            &[first, second, ..] if first & 0x0f == 8 && first < 0x80 && u16::from_be_bytes([first, second]) % 31 == 0 => Compression::Zlib,
            _ => Compression::None,
        }
    }
}

/// Converts TensorFlow's names: `GZIP`, `ZLIB`, and the empty string. As in TensorFlow, any other text means no compression.
impl From<&str> for Compression {
    fn from(name: &str) -> Compression {
        match name {
            "GZIP" => Compression::Gzip,
            "ZLIB" => Compression::Zlib,
            _ => Compression::None,
        }
    }
}

/// Displays TensorFlow's name, or `none`.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Gzip => "GZIP",
            Compression::Zlib => "ZLIB",
        })
    }
}
