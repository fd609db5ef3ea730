//! Whole files, and their names.

use crate::files::write_whole;
use crate::files::{FileError, FileResult};
use bytes::Bytes;
use gradlet_core::random::Stream;
use gradlet_core::{Error, Result};
use std::path::{Path, PathBuf};

/// What a file holds. As `tf.io.read_file`. Fails, naming the file, where it cannot be read.
pub fn read_file(path: impl AsRef<Path>) -> FileResult<Bytes> {
    let path = path.as_ref();
    std::fs::read(path).map(Bytes::from).map_err(|error| FileError::io(path, error))
}

/// Makes a file that holds `content`, and the folders that it is in. As `tf.io.write_file`; the file is written whole or not at all.
///
/// ```
/// use gradlet::io::{matching_files, read_file, write_file};
/// let folder = tempfile::tempdir()?;
/// write_file(folder.path().join("some/where.txt"), b"here")?;
/// let found = matching_files(&[folder.path().join("*/*.txt").display().to_string()])?;
/// assert_eq!(read_file(&found[0])?, "here");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_file(path: impl AsRef<Path>, content: &[u8]) -> FileResult<()> {
    let path = path.as_ref();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| FileError::io(folder, error))?;
    }
    write_whole(path, content)
}

/// The files that match any of `patterns`, sorted, each once; none is no error. As `tf.io.matching_files`.
///
/// In a pattern, `*` stands for any part of a name, `?` for a letter, `[abc]` for one of those, and `**` for folders in folders.
/// Fails where a pattern is none, or a folder cannot be read.
pub fn matching_files<S: AsRef<str>>(patterns: &[S]) -> Result<Vec<PathBuf>> {
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    let mut found = Vec::new();
    for pattern in patterns.iter().map(AsRef::as_ref) {
        let wrong = |error: &dyn std::fmt::Display| Error::message(format!("the file pattern {pattern:?}: {error}"));
        for path in glob::glob_with(pattern, options).map_err(|error| wrong(&error))? {
            found.push(path.map_err(|error| wrong(&error))?);
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// As [`matching_files`], in an order that `shuffle` decides, if there is one. Fails, as `tf.data.Dataset.list_files`, where no file
/// matches.
pub fn list_files<S: AsRef<str>>(patterns: &[S], shuffle: Option<Stream>) -> Result<Vec<PathBuf>> {
    let found = matching_files(patterns)?;
    if found.is_empty() {
        let patterns: Vec<&str> = patterns.iter().map(AsRef::as_ref).collect();
        return Err(Error::message(format!("No files matched pattern: {}", patterns.join(", "))));
    }
    Ok(match shuffle {
        Some(stream) => stream.permutation(found.len()).into_iter().map(|index| found[index].clone()).collect(),
        None => found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        ["b.txt", "a.txt", "c.png", "in/d.txt", ".hidden.txt"].iter().for_each(|name| write_file(path(name), b"").unwrap());
        let pattern = |name: &str| path(name).display().to_string();
        let names = |patterns: &[String]| {
            let found = matching_files(patterns).unwrap();
            found.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[pattern("*.txt")]), [".hidden.txt", "a.txt", "b.txt"]);
        assert_eq!(names(&[pattern("[bc].*"), pattern("b.txt")]), ["b.txt", "c.png"]);
        assert_eq!(names(&[pattern("*/?.txt")]), ["d.txt"]);
        assert_eq!(names(&[pattern("*.gif")]), [""; 0]);
        let error = list_files(&[pattern("*.gif")], None).unwrap_err().to_string();
        assert!(error.contains("No files matched pattern: ") && error.contains("*.gif"), "{error}");
        let shuffled = list_files(&[pattern("*.*")], Some(Stream { key: 3, stream: 0 })).unwrap();
        assert_eq!(shuffled, list_files(&[pattern("*.*")], Some(Stream { key: 3, stream: 0 })).unwrap());
        assert_eq!(shuffled.len(), 4);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = read_file("no/such/file").unwrap_err().to_string();
        assert!(error.contains("no/such/file") && error.contains("No such file"), "{error}");
        assert!(matching_files(&["a***"]).is_err());
    }
}
