//! Errors that name a file, and where in it.

use std::fmt;
use std::path::{Path, PathBuf};

/// A result whose error names a file.
pub type FileResult<T> = Result<T, FileError>;

/// What was wrong with a file, and where in it: `data/t10k.gz: at byte 16: the file ends, 784 bytes more were expected`.
///
/// It becomes a [`gradlet_core::Error`] of the same words where `?` needs one.
#[derive(Debug)]
pub struct FileError {
    path: PathBuf,
    offset: Option<u64>,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Io(std::io::Error),
    Model(gradlet_core::Error),
    Text(String),
}

impl FileError {
    /// An error in words about the whole file.
    pub fn new(path: &Path, text: impl Into<String>) -> FileError {
        FileError { path: path.into(), offset: None, cause: Cause::Text(text.into()) }
    }

    /// An error in words about what is at byte `offset` (of the uncompressed content, where the file is compressed).
    pub fn at(path: &Path, offset: u64, text: impl Into<String>) -> FileError {
        FileError { path: path.into(), offset: Some(offset), cause: Cause::Text(text.into()) }
    }

    /// What the operating system said.
    pub fn io(path: &Path, error: std::io::Error) -> FileError {
        FileError { path: path.into(), offset: None, cause: Cause::Io(error) }
    }

    /// What the core said of the file's content.
    pub fn model(path: &Path, error: gradlet_core::Error) -> FileError {
        FileError { path: path.into(), offset: None, cause: Cause::Model(error) }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where in it, if the error is about one place.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, "at byte {offset}: ")?;
        }
        match &self.cause {
            Cause::Io(error) => error.fmt(f),
            Cause::Model(error) => error.fmt(f),
            Cause::Text(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for FileError {}

impl From<FileError> for gradlet_core::Error {
    fn from(error: FileError) -> gradlet_core::Error {
        gradlet_core::Error::message(error.to_string())
    }
}
