//! How a file is compressed.

use super::error::RecordError;
use super::frame::{HEADER, length};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// How a file of records is compressed: as a whole, not record by record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// As gzip does it (RFC 1952); files that were put together of several are read to the end.
    Gzip,
    /// As zlib does it (RFC 1950).
    Zlib,
}

impl Compression {
    /// Finds out how the file at `path` is compressed. What is no record is taken as not compressed.
    ///
    /// Fails if the file cannot be read.
    pub fn detect(path: &Path) -> Result<Compression, RecordError> {
        let mut begin = Vec::new();
        let read = File::open(path).and_then(|file| file.take(HEADER as u64).read_to_end(&mut begin));
        read.map_err(|error| RecordError::from(error).of(path))?;
        Ok(Compression::of(&begin))
    }

    /// How bytes that begin with these are compressed.
    pub(super) fn of(begin: &[u8]) -> Compression {
        match begin {
            _ if begin.first_chunk().is_some_and(|header| length(header, 0).is_ok()) => Compression::None,
            [0x1f, 0x8b, ..] => Compression::Gzip,
            // Deflate with a window of 32 KiB or less; the two bytes are a multiple of 31.
            &[first, second, ..] if first & 0x0f == 8 && first < 0x80 && u16::from_be_bytes([first, second]) % 31 == 0 => Compression::Zlib,
            _ => Compression::None,
        }
    }
}

/// TensorFlow's names: `GZIP`, `ZLIB`, and nothing. As there, any other text stands for no compression.
impl From<&str> for Compression {
    fn from(name: &str) -> Compression {
        match name {
            "GZIP" => Compression::Gzip,
            "ZLIB" => Compression::Zlib,
            _ => Compression::None,
        }
    }
}

/// TensorFlow's name, or `none`.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Gzip => "GZIP",
            Compression::Zlib => "ZLIB",
        })
    }
}
