//! Errors that name a file and a position in it.

use std::fmt;
use std::path::{Path, PathBuf};

/// Result whose error names a file.
pub type FileResult<T> = Result<T, FileError>;

/// Error about a file, with the position in it: `data/t10k.gz: at byte 16: the file ends, 784 bytes more were expected`.
///
/// `?` converts it to a [`gradlet_core::Error`] with the same text.
pub struct FileError {
    path: PathBuf,
    offset: Option<u64>,
    cause: Cause,
}

enum Cause {
    Io(std::io::Error),
    Model(gradlet_core::Error),
    Text(String),
}

impl FileError {
    /// Creates an error with a text about the whole file.
    pub fn new(path: &Path, text: impl Into<String>) -> FileError {
        FileError { path: path.into(), offset: None, cause: Cause::Text(text.into()) }
    }

    /// Creates an error with a text about byte `offset`. In a compressed file, the offset is that of the uncompressed content.
    pub fn at(path: &Path, offset: u64, text: impl Into<String>) -> FileError {
        FileError { path: path.into(), offset: Some(offset), cause: Cause::Text(text.into()) }
    }

    /// Creates an error from an error of the operating system.
    pub fn io(path: &Path, error: std::io::Error) -> FileError {
        FileError { path: path.into(), offset: None, cause: Cause::Io(error) }
    }

    /// Creates an error from the core's error about the file's content.
    pub fn model(path: &Path, error: gradlet_core::Error) -> FileError {
        FileError { path: path.into(), offset: None, cause: Cause::Model(error) }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the position in the file, in bytes, if the error is about one position.
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

/// The text of `Display`, which is what `main` and `unwrap` print.
impl fmt::Debug for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for FileError {}

impl From<FileError> for gradlet_core::Error {
    fn from(error: FileError) -> gradlet_core::Error {
        let text = error.to_string();
        match (error.cause, error.offset) {
            (Cause::Model(cause), None) => cause.context(error.path.display().to_string()),
            (Cause::Model(cause), Some(offset)) => cause.context(format!("{}: at byte {offset}", error.path.display())),
            _ => gradlet_core::Error::message(text),
        }
    }
}
