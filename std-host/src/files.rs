//! Files that are written whole or not at all.

use crate::file_error::{FileError, FileResult};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Writes `bytes` to `path`: to a temporary file beside it, which takes its place once it is safely on the disk.
///
/// Whatever goes wrong, be it a full disk or a lost power supply, an old file stays as it was, and no half-written one
/// is left. Fails where the folder cannot be written to, and where `path` is something else than a file.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("model.grdl");
/// gradlet::write_whole(&path, b"GRDL")?;
/// assert_eq!(std::fs::read(&path)?, b"GRDL");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_whole(path: &Path, bytes: &[u8]) -> FileResult<()> {
    let mut file = WholeFile::create(path)?;
    file.write_all(bytes).map_err(|error| unwritable(path, &error))?;
    file.finish()
}

/// A file that is written piece by piece, beside the place that it takes in [`finish`](WholeFile::finish).
///
/// One that is dropped before that goes away: an old file stays as it was.
///
/// ```
/// use std::io::Write;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("log");
/// let mut file = gradlet::WholeFile::create(&path)?;
/// file.write_all(b"a line\n")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"a line\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WholeFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl WholeFile {
    /// Begins to write `path`. Fails where [`write_whole`] does.
    pub fn create(path: &Path) -> FileResult<WholeFile> {
        Ok(WholeFile { file: beside(path)?, path: path.into() })
    }

    /// Gives the file its place once it is safely on the disk.
    pub fn finish(self) -> FileResult<()> {
        persist(self.file, &self.path).map_err(|error| unwritable(&self.path, &error))
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Checks that [`write_whole`] could begin to write `path`: for what takes long before it has something to write.
pub fn writable(path: &Path) -> FileResult<()> {
    beside(path).map(drop)
}

/// An empty temporary file in the folder of `path`, which goes away unless it is persisted.
fn beside(path: &Path) -> FileResult<NamedTempFile> {
    if path.symlink_metadata().is_ok_and(|known| !known.is_file()) {
        return Err(FileError::new(path, "is not a regular file, so it cannot be replaced"));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".gradlet-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder(path)).map_err(|error| unwritable(path, &error))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

fn unwritable(path: &Path, error: &std::io::Error) -> FileError {
    match error.kind() {
        std::io::ErrorKind::NotFound => FileError::new(path, format!("cannot be written: there is no folder {}", folder(path).display())),
        _ => FileError::new(path, format!("cannot be written: {}", plain(error))),
    }
}

fn persist(file: NamedTempFile, path: &Path) -> std::io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The new name is on the disk once its folder is; where folders cannot be opened, the system sees to it.
    if let Ok(folder) = std::fs::File::open(folder(path)) {
        folder.sync_all()?;
    }
    Ok(())
}

/// The system's words, without the name of the temporary file.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" at path ").next().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::write_whole;

    #[test]
    fn replaces_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        let text = write_whole(folder.path(), b"").unwrap_err().to_string();
        assert!(text.contains("is not a regular file"), "{text}");
        let text = write_whole(&folder.path().join("none/x"), b"").unwrap_err().to_string();
        assert!(text.contains("there is no folder"), "{text}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
