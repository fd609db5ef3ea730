//! Simulated power losses after every operation of every save. A disk may have kept any part of the data that was not synced.

use super::{CheckpointManager, Numbered, latest};
use crate::files::{Operation, watch};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Contents of a folder: the bytes of each file by path.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The bytes of a file, and the length of the prefix that was synced. The synced bytes survive a power loss.
#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    synced: usize,
}

/// A change of the names in a folder: a name is removed, a name is added, or both. It is certain to survive a power loss only once the
/// folder is synced.
#[derive(Clone)]
struct Change {
    gone: Option<PathBuf>,
    new: Option<(PathBuf, usize)>,
}

/// Model of a disk. Synced data survives a power loss; other data may or may not survive.
#[derive(Clone, Default)]
struct Disk {
    contents: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    pending: Vec<Change>,
}

type Kept = fn(&[u8]) -> Vec<u8>;

/// Possible contents, after a power loss, of bytes that were written but not synced.
const KEPT: [Kept; 5] = [
    |_| Vec::new(),
    |bytes| bytes.to_vec(),
    |bytes| bytes[..bytes.len() / 2].to_vec(),
    |bytes| vec![0; bytes.len()],
    // The second half was stored, the first half was not.
    |bytes| [&vec![0; bytes.len() / 2][..], &bytes[bytes.len() / 2..]].concat(),
];

impl Disk {
    fn now(&self) -> BTreeMap<PathBuf, usize> {
        self.names_with(|_| true)
    }

    /// Returns the names in the folder if only the unsynced changes that `lasts` selects by index take effect.
    fn names_with(&self, lasts: impl Fn(usize) -> bool) -> BTreeMap<PathBuf, usize> {
        let mut names = self.names.clone();
        for (_, change) in self.pending.iter().enumerate().filter(|(index, _)| lasts(*index)) {
            if let Some(path) = &change.gone {
                names.remove(path);
            }
            names.extend(change.new.clone());
        }
        names
    }

    fn apply(&mut self, operation: &Recorded) {
        match operation {
            Recorded::Create(path) => {
                self.contents.push(Content::default());
                self.pending.push(Change { gone: None, new: Some((path.clone(), self.contents.len() - 1)) });
            }
            Recorded::Write(path, bytes) => {
                let file = self.now()[path];
                self.contents[file].now.extend(bytes);
            }
            Recorded::Sync(path) => {
                let file = self.now()[path];
                self.contents[file].synced = self.contents[file].now.len();
            }
            Recorded::Rename(from, to) => {
                let file = self.now()[from];
                self.pending.push(Change { gone: Some(from.clone()), new: Some((to.clone(), file)) });
            }
            Recorded::Remove(path) => self.pending.push(Change { gone: Some(path.clone()), new: None }),
            Recorded::SyncFolder => {
                self.names = self.now();
                self.pending.clear();
            }
        }
    }

    /// Returns every state in which a power loss may leave the folder.
    fn after_power_loss(&self) -> BTreeSet<Files> {
        assert!(self.pending.len() < 10, "{} changes of names are not synced", self.pending.len());
        let mut states = BTreeSet::new();
        for subset in 0..1 << self.pending.len() {
            let names = self.names_with(|index| subset >> index & 1 == 1);
            for kept in KEPT {
                let content = |file: usize| {
                    let (synced, rest) = self.contents[file].now.split_at(self.contents[file].synced);
                    [synced, &kept(rest)].concat()
                };
                states.insert(names.iter().map(|(path, file)| (path.clone(), content(*file))).collect());
            }
        }
        states
    }
}

/// An operation on a file, with paths relative to the folder.
#[derive(Clone)]
enum Recorded {
    Create(PathBuf),
    Write(PathBuf, Vec<u8>),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    SyncFolder,
    Remove(PathBuf),
}

/// Records the file operations that `save` does in a folder.
fn recorded(folder: &Path, save: impl FnOnce()) -> Vec<Recorded> {
    let operations = Rc::new(RefCell::new(Vec::new()));
    let (list, folder) = (operations.clone(), folder.to_path_buf());
    let watcher = move |operation: Operation<'_>| {
        let name = |path: &Path| path.strip_prefix(&folder).unwrap().to_path_buf();
        list.borrow_mut().push(match operation {
            Operation::Create(path) => Recorded::Create(name(path)),
            Operation::Write(path, bytes) => Recorded::Write(name(path), bytes.to_vec()),
            Operation::Sync(path) => Recorded::Sync(name(path)),
            Operation::Rename(from, to) => Recorded::Rename(name(from), name(to)),
            Operation::SyncFolder(path) => {
                assert_eq!(path, folder);
                Recorded::SyncFolder
            }
            Operation::Remove(path) => Recorded::Remove(name(path)),
        });
    };
    watch::during(watcher, save);
    operations.take()
}

/// Creates a temporary folder with these files.
fn lay_out(files: &Files) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(path, bytes)| std::fs::write(folder.path().join(path), bytes).unwrap());
    folder
}

/// Result of the simulated power losses.
#[derive(Default)]
struct Found {
    /// Number of different states of the disk.
    states: usize,
    /// Number of states from which the latest checkpoint cannot be restored or is not the expected one.
    broken: usize,
}

/// Saves `saves` times and simulates a power loss after every operation. The modelled disk ignores the operations that `told` rejects.
fn lose_power(saves: u32, told: fn(&Recorded) -> bool, save: impl Fn(&mut CheckpointManager<'_>)) -> Found {
    let folder = tempfile::tempdir().unwrap();
    let numbered = Numbered::new();
    let mut manager = numbered.manager(folder.path()).unwrap();
    let (mut disk, mut operations, mut result) = (Disk::default(), 0, Found::default());
    for number in 1..=saves {
        numbered.set(number);
        let list = recorded(folder.path(), || save(&mut manager));
        operations += list.len();
        let (old, new) = ((number > 1).then(|| number - 1), Some(number));
        let mut judge = |disk: &Disk, may_be: &[Option<u32>], seen: &mut BTreeSet<Files>| {
            for files in disk.after_power_loss() {
                if seen.insert(files.clone()) {
                    let after = lay_out(&files);
                    let whole = latest(after.path()).is_ok_and(|found| may_be.contains(&found));
                    result.states += 1;
                    result.broken += usize::from(!(whole && goes_on(after.path(), &save)));
                }
            }
        };
        let mut seen = BTreeSet::new();
        for operation in list.iter().filter(|operation| told(operation)) {
            judge(&disk, &[old, new], &mut seen);
            disk.apply(operation);
        }
        judge(&disk, &[new], &mut BTreeSet::new());
        // The modelled disk agrees with the real folder.
        for (path, file) in disk.now() {
            assert_eq!(std::fs::read(folder.path().join(path)).unwrap(), disk.contents[file].now);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), disk.now().len());
    }
    let Found { states, broken } = &result;
    println!("{saves} saves of {operations} operations: {states} states of the disk after a loss of power, {broken} of them not whole");
    result
}

/// True if training can continue after a power loss: the next save succeeds and can be restored.
fn goes_on(folder: &Path, save: impl Fn(&mut CheckpointManager<'_>)) -> bool {
    const NEXT: u32 = 1000;
    let numbered = Numbered::new();
    let mut manager = numbered.manager(folder).unwrap();
    manager.restore_or_initialize().unwrap();
    numbered.set(NEXT);
    save(&mut manager);
    latest(folder).is_ok_and(|found| found == Some(NEXT))
}

#[test]
fn a_save_outlives_a_loss_of_power() {
    let Found { states, broken } = lose_power(5, |_| true, |manager| _ = manager.save().unwrap());
    assert!(states > 200 && broken == 0, "{broken} of {states}");
}

#[test]
fn a_checkpoint_that_is_saved_again_outlives_a_loss_of_power() {
    let Found { states, broken } = lose_power(4, |_| true, |manager| _ = manager.save_with_checkpoint_number(7).unwrap());
    assert!(states > 100 && broken == 0, "{broken} of {states}");
}

/// Shows that the modelled disk loses data that was not synced.
#[test]
fn without_fsync_a_save_is_lost() {
    let told = |operation: &Recorded| !matches!(operation, Recorded::Sync(_));
    let Found { states, broken } = lose_power(2, told, |manager| _ = manager.save().unwrap());
    assert!(broken > states / 4, "{broken} of {states}");
}
