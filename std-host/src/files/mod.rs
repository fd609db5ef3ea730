//! Files that are written whole or not at all.

mod error;

pub use error::{FileError, FileResult};

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

    /// Gives the file another place, in the same folder, once it is safely on the disk.
    pub(crate) fn finish_as(self, path: &Path) -> FileResult<()> {
        WholeFile { path: path.into(), ..self }.finish()
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        #[cfg(test)]
        watch::tell(Operation::Write(self.file.path(), bytes));
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

/// What the names of temporary files begin with.
const TEMPORARY: &str = ".gradlet-";

/// Deletes the temporary files in a folder that programs left which were killed: those that nobody wrote to for an hour.
pub(crate) fn remove_leftovers(folder: &Path) {
    let hour = std::time::Duration::from_secs(3600);
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let is_temporary = entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes());
        let age = || entry.metadata().ok().filter(|known| known.is_file())?.modified().ok()?.elapsed().ok();
        if is_temporary && age().is_some_and(|age| age > hour) {
            // One that cannot be deleted is in nobody's way.
            let _ = remove(&entry.path());
        }
    }
}

/// An empty temporary file in the folder of `path`, which goes away unless it is persisted.
fn beside(path: &Path) -> FileResult<NamedTempFile> {
    if path.symlink_metadata().is_ok_and(|known| !known.is_file()) {
        return Err(FileError::new(path, "is not a regular file, so it cannot be replaced"));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(folder(path)).map_err(|error| unwritable(path, &error))?;
    #[cfg(test)]
    watch::tell(Operation::Create(file.path()));
    Ok(file)
}

/// Makes a folder, and those that it is in, that is there after a loss of power too.
pub(crate) fn create_folder(path: &Path) -> FileResult<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    create_folder(folder(path))?;
    std::fs::create_dir(path).or_else(|error| if path.is_dir() { Ok(()) } else { Err(FileError::io(path, error)) })?;
    sync_folder(folder(path)).map_err(|error| FileError::io(path, error))
}

/// Deletes a file.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    #[cfg(test)]
    watch::tell(Operation::Remove(path));
    std::fs::remove_file(path)
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
    #[cfg(test)]
    watch::tell(Operation::Sync(file.path()));
    file.as_file().sync_all()?;
    #[cfg(test)]
    watch::tell(Operation::Rename(file.path(), path));
    file.persist(path)?;
    #[cfg(test)]
    watch::tell(Operation::SyncFolder(folder(path)));
    sync_folder(folder(path))
}

/// New names are on the disk once their folder is; where folders cannot be opened, the system sees to it.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    std::fs::File::open(path).map_or(Ok(()), |folder| folder.sync_all())
}

/// The system's words, without the name of the temporary file.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" at path ").next().unwrap_or_default().into()
}

/// An operation on files, told as it begins; a `Create` as it is done, since only then the file has a name.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation<'a> {
    Create(&'a Path),
    Write(&'a Path, &'a [u8]),
    Sync(&'a Path),
    Rename(&'a Path, &'a Path),
    SyncFolder(&'a Path),
    Remove(&'a Path),
}

/// Tells a test what is done to files, so that it can stop that anywhere.
#[cfg(test)]
pub(crate) mod watch {
    use super::Operation;
    use std::cell::RefCell;

    type Watcher = Box<dyn FnMut(Operation<'_>)>;

    thread_local! {
        static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
    }

    /// Has `watcher` told of the operations of this thread while `run` runs.
    pub(crate) fn during<T>(watcher: impl FnMut(Operation<'_>) + 'static, run: impl FnOnce() -> T) -> T {
        WATCHER.set(Some(Box::new(watcher)));
        let result = run();
        WATCHER.set(None);
        result
    }

    pub(crate) fn tell(operation: Operation<'_>) {
        WATCHER.with_borrow_mut(|watcher| watcher.iter_mut().for_each(|watcher| watcher(operation)));
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, watch, write_whole};
    use std::cell::RefCell;
    use std::path::Path;
    use std::rc::Rc;

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

    /// A name that the disk has is the name of bytes that the disk has.
    #[test]
    fn bytes_are_on_the_disk_before_they_have_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let steps = Rc::new(RefCell::new(Vec::new()));
        let (list, target) = (steps.clone(), path.clone());
        let watcher = move |operation: Operation<'_>| {
            let temporary = |path: &Path| path.parent() == target.parent() && path != target;
            list.borrow_mut().push(match operation {
                Operation::Create(path) if temporary(path) => "create".into(),
                Operation::Write(path, bytes) if temporary(path) => format!("write {}", bytes.len()),
                Operation::Sync(path) if temporary(path) => "sync".into(),
                Operation::Rename(from, to) if temporary(from) && to == target => "rename".into(),
                Operation::SyncFolder(folder) if Some(folder) == target.parent() => "sync folder".into(),
                other => format!("{other:?}"),
            });
        };
        watch::during(watcher, || write_whole(&path, b"three")).unwrap();
        assert_eq!(steps.take(), ["create", "write 5", "sync", "rename", "sync folder"]);
    }
}
