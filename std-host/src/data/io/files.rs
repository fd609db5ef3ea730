//! Reading and writing of whole files, and search by file name patterns.

use crate::files::write_whole;
use crate::files::{FileError, FileResult};
use bytes::Bytes;
use gradlet_core::random::Stream;
use gradlet_core::{Error, Result};
use std::path::{Path, PathBuf};

/// Returns the content of a file. Equivalent of `tf.io.read_file`. If the file cannot be read, the error names it.
pub fn read_file(path: impl AsRef<Path>) -> FileResult<Bytes> {
    let path = path.as_ref();
    std::fs::read(path).map(Bytes::from).map_err(|error| FileError::io(path, error))
}

/// Writes `content` to a file and creates the folders in its path. Equivalent of `tf.io.write_file`. The file is replaced atomically: it
/// has either its old content or the complete new content.
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

/// Returns the files that match any of `patterns`, sorted and without duplicates. The result may be empty. Equivalent of
/// `tf.io.matching_files`.
///
/// In a pattern, `*` matches any part of a name, `?` any character, `[abc]` one of these characters, and `**` any number of nested folders.
/// Fails if a pattern is invalid or a folder cannot be read.
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

/// Returns the files that match any of `patterns`, like [`matching_files`], in a random order if `shuffle` is given. Fails if no file
/// matches, like `tf.data.Dataset.list_files`.
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
