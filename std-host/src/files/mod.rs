//! Files that are written completely or not at all.

mod error;

pub use error::{FileError, FileResult};

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes `bytes` to `path`. The bytes go to a temporary file in the same folder, which replaces `path` once it is safely on the
/// disk.
///
/// If anything goes wrong, for example a full disk or a loss of power, an old file stays unchanged and no half-written file
/// replaces it. Fails if the folder is not writable, or if `path` is not a regular file.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("model.grdl");
/// gradlet::io::write_whole(&path, b"GRDL")?;
/// assert_eq!(std::fs::read(&path)?, b"GRDL");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_whole(path: &Path, bytes: &[u8]) -> FileResult<()> {
    let mut file = WholeFile::create(path)?;
    file.write_all(bytes).map_err(|error| unwritable(path, &error))?;
    file.finish()
}

/// File that is written piece by piece. It is a temporary file beside its path until [`finish`](WholeFile::finish) moves it there.
///
/// If it is dropped before that, the temporary file is deleted, and an old file stays unchanged.
///
/// ```
/// use std::io::Write;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("log");
/// let mut file = gradlet::io::WholeFile::create(&path)?;
/// file.write_all(b"a line\n")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"a line\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WholeFile {
    file: Temporary,
    path: PathBuf,
}

impl WholeFile {
    /// Starts to write `path`. Fails in the same cases as [`write_whole`].
    pub fn create(path: &Path) -> FileResult<WholeFile> {
        Ok(WholeFile { file: beside(path)?, path: path.into() })
    }

    /// Moves the file to its path once it is safely on the disk.
    pub fn finish(self) -> FileResult<()> {
        persist(self.file, &self.path).map_err(|error| unwritable(&self.path, &error))
    }

    /// Moves the file to another path, in the same folder, once it is safely on the disk.
    pub(crate) fn finish_as(self, path: &Path) -> FileResult<()> {
        WholeFile { path: path.into(), ..self }.finish()
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        #[cfg(test)]
        watch::tell(Operation::Write(&self.file.path, bytes));
        self.file.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Checks that [`write_whole`] could start to write `path`. A long computation calls this before it starts.
pub fn writable(path: &Path) -> FileResult<()> {
    beside(path).map(drop)
}

/// Prefix of the names of temporary files.
const TEMPORARY: &str = ".gradlet-";

/// Deletes the temporary files in a folder that killed programs left behind: those that have not changed for an hour.
pub(crate) fn remove_leftovers(folder: &Path) {
    let hour = std::time::Duration::from_secs(3600);
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let is_temporary = entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes());
        let age = || entry.metadata().ok().filter(|known| known.is_file())?.modified().ok()?.elapsed().ok();
        if is_temporary && age().is_some_and(|age| age > hour) {
            // A file that cannot be deleted does no harm.
            let _ = remove(&entry.path());
        }
    }
}

/// A file beside the one to be written. It is deleted on drop unless it was renamed.
#[derive(Debug)]
struct Temporary {
    file: File,
    path: PathBuf,
    renamed: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // `remove_leftovers` deletes a file that stays behind.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Creates an empty temporary file in the folder of `path`.
fn beside(path: &Path) -> FileResult<Temporary> {
    if path.symlink_metadata().is_ok_and(|known| !known.is_file()) {
        return Err(FileError::new(path, "is not a regular file, so it cannot be replaced"));
    }
    // A name is used once: a file that another process took for a leftover must not be mistaken for a new one.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = std::path::absolute(folder(path)).map_err(|error| unwritable(path, &error))?;
    loop {
        let name = folder.join(format!("{TEMPORARY}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        match OpenOptions::new().write(true).create_new(true).open(&name) {
            Ok(file) => {
                #[cfg(test)]
                watch::tell(Operation::Create(&name));
                return Ok(Temporary { file, path: name, renamed: false });
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => (),
            Err(error) => return Err(unwritable(path, &error)),
        }
    }
}

/// Creates a folder and its missing parents, so that they still exist after a loss of power.
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
        ErrorKind::NotFound => FileError::new(path, format!("cannot be written: there is no folder {}", folder(path).display())),
        _ => FileError::new(path, format!("cannot be written: {error}")),
    }
}

fn persist(mut file: Temporary, path: &Path) -> std::io::Result<()> {
    #[cfg(test)]
    watch::tell(Operation::Sync(&file.path));
    file.file.sync_all()?;
    #[cfg(test)]
    watch::tell(Operation::Rename(&file.path, path));
    std::fs::rename(&file.path, path)?;
    file.renamed = true;
    #[cfg(test)]
    watch::tell(Operation::SyncFolder(folder(path)));
    sync_folder(folder(path))
}

/// Syncs a folder. A new name is on the disk only once its folder is synced. Where folders cannot be opened, the system ensures
/// this.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path).map_or(Ok(()), |folder| folder.sync_all())
}

/// An operation on files. It is reported before it runs. Only `Create` is reported afterwards, because the file has no name before.
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

/// Reports file operations to a test, so that it can interrupt them at any point.
#[cfg(test)]
pub(crate) mod watch {
    use super::Operation;
    use std::cell::RefCell;

    type Watcher = Box<dyn FnMut(Operation<'_>)>;

    thread_local! {
        static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
    }

    /// Runs `run`, and reports the file operations of this thread to `watcher` meanwhile.
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

    /// Checks that a file's name is on the disk only after its bytes are.
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
