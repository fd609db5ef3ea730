//! The manager of a folder of checkpoints.

use super::bundle::append;
use super::state::State;
use super::{Checkpoint, scope};
use crate::files::FileResult;
use crate::files::{remove, remove_leftovers};
use gradlet_core::{Error, Result, Scope, Variable};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A manager that keeps the last checkpoints of a folder and deletes older ones: TensorFlow's `tf.train.CheckpointManager`.
///
/// The checkpoints are called `ckpt-1`, `ckpt-2`, and so on. The file `checkpoint` beside them lists them. TensorFlow can continue
/// with such a folder, and this manager can continue with TensorFlow's. Only one program at a time may save to a folder.
///
/// A save is atomic, even if the program or the computer stops. The file `checkpoint` names a new checkpoint only after the
/// checkpoint is on the disk. Older checkpoints are deleted only after that.
///
/// ```
/// use gradlet::checkpoint::{Checkpoint, CheckpointManager};
/// use gradlet::{Eager, Scope, Tensor, Variable};
/// let scope = Eager::new(&gradlet::cpu());
/// let folder = tempfile::tempdir()?;
/// let step = Variable::new(&scope, "step", &Tensor::scalar(&scope.device(), 0i64))?;
/// let mut manager = CheckpointManager::new(Checkpoint::new().with("step", &step), folder.path().join("save"), 2)?;
/// manager.restore_or_initialize()?;
/// for number in 1..=3i64 {
///     scope.assign(&step, &Tensor::scalar(&scope.device(), 10 * number))?;
///     let path = manager.save()?;
///     assert!(path.ends_with(format!("ckpt-{number}")));
/// }
/// assert_eq!(manager.checkpoints().len(), 2);
/// assert!(manager.latest_checkpoint().unwrap().ends_with("ckpt-3"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "tf.train.CheckpointManager")]
pub struct CheckpointManager<'a> {
    checkpoint: Checkpoint<'a>,
    directory: PathBuf,
    checkpoint_name: String,
    max_to_keep: Option<usize>,
    keep_checkpoint_every_n_hours: Option<f64>,
    interval: Option<Interval>,
    init_fn: Option<Box<dyn Fn() -> Result<()> + 'a>>,
    latest: Option<PathBuf>,
    /// The checkpoints that may be deleted later, oldest first, each with the time of its save.
    kept: Vec<(PathBuf, f64)>,
    last_preserved: f64,
    clock: fn() -> f64,
}

/// Settings of [`CheckpointManager::checkpoint_interval`].
struct Interval {
    step_counter: Variable,
    steps: i64,
    last: Option<i64>,
}

/// True if two paths name the same folder.
fn same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Returns the time in seconds since 1970.
fn now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |time| time.as_secs_f64())
}

impl<'a> CheckpointManager<'a> {
    /// Creates a manager for `directory`, which need not exist yet. The manager continues with the checkpoints that the folder's
    /// file `checkpoint` names. It keeps the last `max_to_keep` checkpoints, or all of them for `None`.
    ///
    /// Fails if `max_to_keep` is 0 or the file `checkpoint` is damaged.
    pub fn new(
        checkpoint: Checkpoint<'a>,
        directory: impl Into<PathBuf>,
        max_to_keep: impl Into<Option<usize>>,
    ) -> Result<CheckpointManager<'a>> {
        CheckpointManager::with_clock(checkpoint, directory.into(), max_to_keep.into(), now)
    }

    fn with_clock(checkpoint: Checkpoint<'a>, directory: PathBuf, max_to_keep: Option<usize>, clock: fn() -> f64) -> Result<Self> {
        if max_to_keep == Some(0) {
            return Err(Error::message("expected a positive number or None for `max_to_keep`, got 0"));
        }
        let mut manager = CheckpointManager {
            checkpoint,
            directory,
            checkpoint_name: "ckpt".into(),
            max_to_keep,
            keep_checkpoint_every_n_hours: None,
            interval: None,
            init_fn: None,
            latest: None,
            kept: Vec::new(),
            // One second earlier, so that a checkpoint saved immediately counts as later.
            last_preserved: clock() - 1.0,
            clock,
        };
        if let Some(state) = State::read(&manager.directory)? {
            manager.recover(state);
        }
        Ok(manager)
    }

    /// Continues with the checkpoints that the folder already has. Times in the future, left by a clock that was set back, become
    /// the present time.
    fn recover(&mut self, state: State) {
        let now = (self.clock)();
        let State { model_checkpoint_path, all_model_checkpoint_paths: paths, all_model_checkpoint_timestamps: mut times, .. } = state;
        // A folder can have several paths. Checkpoints in this folder are named with the manager's own path of it.
        let own = |path: PathBuf| match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) if same(folder, &self.directory) => self.directory.join(name),
            _ => path,
        };
        let paths: Vec<PathBuf> = paths.into_iter().map(own).collect();
        self.latest = Some(own(model_checkpoint_path));
        self.last_preserved = state.last_preserved_timestamp.min(now);
        if times.is_empty() {
            times = vec![self.last_preserved; paths.len()];
        }
        let kept = paths.into_iter().zip(times).map(|(path, time)| (path, time.min(now)));
        self.kept = kept.filter(|(_, time)| *time > self.last_preserved).collect();
    }

    /// Sets the file name in front of the number. The default is `ckpt`.
    pub fn checkpoint_name(self, checkpoint_name: impl Into<String>) -> Self {
        CheckpointManager { checkpoint_name: checkpoint_name.into(), ..self }
    }

    /// Keeps some old checkpoints permanently. A checkpoint that would be deleted is preserved if it was saved at least `hours`
    /// hours after the last preserved one.
    pub fn keep_checkpoint_every_n_hours(self, hours: f64) -> Self {
        CheckpointManager { keep_checkpoint_every_n_hours: Some(hours), ..self }
    }

    /// Makes [`save_if_due`](CheckpointManager::save_if_due) wait until `step_counter`, an i64, is at least `steps` past the
    /// last checkpoint.
    pub fn checkpoint_interval(self, step_counter: &Variable, steps: i64) -> Self {
        let interval = Interval { step_counter: step_counter.clone(), steps, last: None };
        CheckpointManager { interval: Some(interval), ..self }
    }

    /// Sets the function that [`restore_or_initialize`](CheckpointManager::restore_or_initialize) calls if there is no checkpoint.
    pub fn init_fn(self, init_fn: impl Fn() -> Result<()> + 'a) -> Self {
        CheckpointManager { init_fn: Some(Box::new(init_fn)), ..self }
    }

    /// Returns the folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the checkpoint that the manager saves and restores.
    pub fn checkpoint(&self) -> &Checkpoint<'a> {
        &self.checkpoint
    }

    /// Returns the prefix of the latest checkpoint, saved by this manager or by an earlier one of the same folder.
    pub fn latest_checkpoint(&self) -> Option<&Path> {
        self.latest.as_deref()
    }

    /// Returns the prefixes of the checkpoints that are kept, oldest first. Preserved checkpoints, which are never deleted, are
    /// not included.
    pub fn checkpoints(&self) -> Vec<&Path> {
        self.kept.iter().map(|(path, _)| path.as_path()).collect()
    }

    /// Saves the next checkpoint and deletes the oldest ones beyond `max_to_keep`. The number of the new checkpoint is the number
    /// of saves so far, this one included. Returns the prefix of the new files.
    ///
    /// If an old file cannot be deleted, it stays and a message goes to stderr. Fails if the files of the new checkpoint cannot be
    /// written; earlier checkpoints then stay as they were.
    pub fn save(&mut self) -> FileResult<PathBuf> {
        self.save_as(None)
    }

    /// Saves the checkpoint under a given number, such as the number of the batch: TensorFlow's `save(checkpoint_number=…)`.
    /// Otherwise works like [`save`](CheckpointManager::save).
    ///
    /// An existing checkpoint with this number is overwritten and becomes the latest.
    #[doc(alias = "checkpoint_number")]
    pub fn save_with_checkpoint_number(&mut self, checkpoint_number: u64) -> FileResult<PathBuf> {
        self.save_as(Some(checkpoint_number))
    }

    /// Saves the next checkpoint if none was saved yet or if the step counter is far enough past the last one. Returns the prefix
    /// of the new files, or `None` if it did not save. This is TensorFlow's `save` with a `checkpoint_interval`. Without [an
    /// interval](CheckpointManager::checkpoint_interval), it always saves.
    ///
    /// Fails in the same cases as [`save`](CheckpointManager::save), and if the step counter is not an i64.
    pub fn save_if_due(&mut self) -> Result<Option<PathBuf>> {
        if let Some(interval) = &self.interval {
            let step = interval.step()?;
            if interval.last.is_some_and(|last| step == last || step < last.saturating_add(interval.steps)) {
                return Ok(None);
            }
        }
        Ok(Some(self.save()?))
    }

    fn save_as(&mut self, number: Option<u64>) -> FileResult<PathBuf> {
        let prefix = self.checkpoint.counted(&self.directory, |count| {
            let number = number.map_or(count.to_string(), |number| number.to_string());
            self.checkpoint.write(self.directory.join(format!("{}-{number}", self.checkpoint_name)))
        })?;
        if let Some(interval) = &mut self.interval {
            interval.last = interval.step().ok();
        }
        self.kept.retain(|(path, _)| *path != prefix);
        self.kept.push((prefix.clone(), (self.clock)()));
        self.latest = Some(prefix.clone());
        // Checkpoints stay listed until their files are deleted. After a crash, the next manager can therefore delete the rest.
        self.record()?;
        if self.sweep() {
            self.record()?;
        }
        remove_leftovers(&self.directory);
        Ok(prefix)
    }

    /// Deletes or preserves the checkpoints beyond `max_to_keep`. Returns true if there were any.
    fn sweep(&mut self) -> bool {
        let too_many = self.max_to_keep.map_or(0, |max_to_keep| self.kept.len().saturating_sub(max_to_keep));
        for (path, time) in self.kept.drain(..too_many) {
            let apart = self.keep_checkpoint_every_n_hours.map(|hours| hours * 3600.0).filter(|&apart| apart != 0.0);
            if apart.is_some_and(|apart| time - apart >= self.last_preserved) {
                self.last_preserved = time;
            } else {
                delete(&path);
            }
        }
        too_many > 0
    }

    fn record(&self) -> FileResult<()> {
        let (paths, times) = self.kept.iter().cloned().unzip();
        let state = State {
            model_checkpoint_path: self.latest.clone().unwrap_or_default(),
            all_model_checkpoint_paths: paths,
            all_model_checkpoint_timestamps: times,
            last_preserved_timestamp: self.last_preserved,
        };
        state.write(&self.directory)
    }

    /// Restores the latest checkpoint and returns the prefix of its files. If there is none, calls
    /// [`init_fn`](CheckpointManager::init_fn) and returns `None`.
    ///
    /// Fails in the same cases as [`Checkpoint::restore`].
    pub fn restore_or_initialize(&mut self) -> Result<Option<PathBuf>> {
        let Some(latest) = &self.latest else {
            return self.init_fn.as_ref().map_or(Ok(()), |init| init()).map(|()| None);
        };
        self.checkpoint.restore(latest)?;
        if let Some(interval) = &mut self.interval {
            interval.last = Some(interval.step()?);
        }
        Ok(Some(latest.clone()))
    }
}

impl Interval {
    fn step(&self) -> Result<i64> {
        scope().read(&self.step_counter)?.item::<i64>()
    }
}

/// Deletes the files of a checkpoint. The index is deleted first: without it, the data files are not a checkpoint.
fn delete(prefix: &Path) {
    let told = |path: &Path| match remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => eprintln!("{}: cannot be deleted: {error}", path.display()),
        _ => (),
    };
    told(&append(prefix, ".index"));
    let (Some(folder), Some(name)) = (prefix.parent(), prefix.file_name()) else { return };
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().strip_prefix(name.as_encoded_bytes()).is_some_and(is_data) {
            told(&entry.path());
        }
    }
}

/// True if `ending`, the part of a file name after the prefix, has the form `.data-?????-of-?????`.
fn is_data(ending: &[u8]) -> bool {
    ending.len() == ".data-00000-of-00001".len() && ending.starts_with(b".data-") && &ending[11..15] == b"-of-"
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::Tensor;
    use std::sync::atomic::{AtomicU32, Ordering};

    static SECONDS: AtomicU32 = AtomicU32::new(0);

    fn manager(folder: &Path, keep: usize) -> CheckpointManager<'static> {
        let clock = || f64::from(SECONDS.load(Ordering::Relaxed));
        let variable = Variable::new(&scope(), "v", &Tensor::scalar(&crate::compute::devices::cpu(), 1.0f32)).unwrap();
        let checkpoint = Checkpoint::new().with("v", variable);
        let manager = CheckpointManager::with_clock(checkpoint, folder.into(), Some(keep), clock).unwrap();
        manager.keep_checkpoint_every_n_hours(1.0)
    }

    fn number(path: &Path) -> u32 {
        path.to_str().unwrap().rsplit_once('-').unwrap().1.parse().unwrap()
    }

    /// Returns the numbers that the manager keeps, the numbers that the folder has, and the time of the last preserved checkpoint.
    fn kept(manager: &CheckpointManager<'_>) -> (Vec<u32>, Vec<u32>, f64) {
        let entries = manager.directory().read_dir().unwrap().map(|entry| entry.unwrap().path());
        let indices = entries.filter(|path| path.extension().is_some_and(|ending| ending == "index"));
        let mut there: Vec<u32> = indices.map(|path| number(&path.with_extension(""))).collect();
        there.sort_unstable();
        (manager.checkpoints().into_iter().map(number).collect(), there, manager.last_preserved)
    }

    /// The expected lists are those of TensorFlow 2.21 for saves at these times.
    #[test]
    fn keeps_a_checkpoint_every_hour() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds: u32| SECONDS.store(seconds, Ordering::Relaxed);
        at(10_000);
        let mut one = manager(folder.path(), 2);
        let wanted = [
            (10_000, vec![1], vec![1], 9_999.0),
            (11_500, vec![1, 2], vec![1, 2], 9_999.0),
            (13_000, vec![2, 3], vec![2, 3], 9_999.0),
            (14_500, vec![3, 4], vec![3, 4], 9_999.0),
            (16_000, vec![4, 5], vec![4, 5], 9_999.0),
            (17_500, vec![5, 6], vec![4, 5, 6], 14_500.0),
            (19_000, vec![6, 7], vec![4, 6, 7], 14_500.0),
            (20_500, vec![7, 8], vec![4, 7, 8], 14_500.0),
            (22_000, vec![8, 9], vec![4, 7, 8, 9], 19_000.0),
            (23_500, vec![9, 10], vec![4, 7, 9, 10], 19_000.0),
        ];
        for (seconds, numbers, there, preserved) in wanted {
            at(seconds);
            one.save().unwrap();
            assert_eq!(kept(&one), (numbers, there, preserved));
        }
        let state = std::fs::read_to_string(folder.path().join("checkpoint")).unwrap();
        let wanted = "model_checkpoint_path: \"ckpt-10\"\nall_model_checkpoint_paths: \"ckpt-9\"\nall_model_checkpoint_paths: \"ckpt-10\"\n\
                      all_model_checkpoint_timestamps: 22000.0\n\
                      all_model_checkpoint_timestamps: 23500.0\nlast_preserved_timestamp: 19000.0\n";
        assert_eq!(state, wanted);

        // The clock is set back: first a little, then to a time before all checkpoints.
        at(20_000);
        let mut two = manager(folder.path(), 2);
        two.restore_or_initialize().unwrap();
        assert_eq!(kept(&two), (vec![9, 10], vec![4, 7, 9, 10], 19_000.0));
        two.save().unwrap();
        assert_eq!(kept(&two), (vec![10, 11], vec![4, 7, 10, 11], 19_000.0));
        at(5_000);
        let mut three = manager(folder.path(), 1);
        assert_eq!(kept(&three), (vec![], vec![4, 7, 10, 11], 5_000.0));
        assert!(three.latest_checkpoint().unwrap().ends_with("ckpt-11"));
        at(6_000);
        three.save_with_checkpoint_number(15).unwrap();
        three.save_with_checkpoint_number(15).unwrap();
        assert_eq!(kept(&three), (vec![15], vec![4, 7, 10, 11, 15], 5_000.0));
        three.save_with_checkpoint_number(3).unwrap();
        assert_eq!(kept(&three), (vec![3], vec![3, 4, 7, 10, 11], 5_000.0));
    }

    /// A save succeeds even if an old file cannot be deleted.
    #[test]
    fn a_file_that_cannot_be_deleted_stays() {
        let folder = tempfile::tempdir().unwrap();
        let step = Variable::new(&scope(), "step", &Tensor::scalar(&crate::compute::devices::cpu(), 0i64)).unwrap();
        let mut manager = CheckpointManager::new(Checkpoint::new().with("step", step), folder.path(), 1).unwrap();
        let first = manager.save().unwrap();
        std::fs::remove_file(append(&first, ".index")).unwrap();
        std::fs::create_dir(append(&first, ".index")).unwrap();
        let second = manager.save().unwrap();
        assert_eq!(manager.checkpoints(), [second.as_path()]);
        assert!(append(&first, ".index").exists() && !append(&first, ".data-00000-of-00001").exists());
        manager.save().unwrap();
    }

    /// The temporary files of a killed save are deleted by a later save, once they are old.
    #[test]
    fn what_a_killed_save_left_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, other] = [".gradlet-abc123", ".gradlet-def456", "notes"].map(|name| folder.path().join(name));
        let long_ago = SystemTime::now() - std::time::Duration::from_secs(4000);
        for (path, time) in [(&old, long_ago), (&new, SystemTime::now()), (&other, long_ago)] {
            std::fs::write(path, "half").unwrap();
            std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        }
        CheckpointManager::new(Checkpoint::new(), folder.path(), 1).unwrap().save().unwrap();
        assert_eq!([old, new, other].map(|path| path.exists()), [false, true, true]);
    }

    #[test]
    fn saves_when_it_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let step = Variable::new(&scope(), "step", &Tensor::scalar(&crate::compute::devices::cpu(), 0i64)).unwrap();
        let checkpoint = Checkpoint::new().with("step", &step);
        let mut manager = CheckpointManager::new(checkpoint, folder.path().join("a/b"), None).unwrap().checkpoint_interval(&step, 3);
        let mut saved = Vec::new();
        for number in 0..8i64 {
            scope().assign(&step, &Tensor::scalar(&crate::compute::devices::cpu(), number)).unwrap();
            saved.extend(manager.save_if_due().unwrap().map(|_| number));
        }
        assert_eq!(saved, [0, 3, 6]);
        assert_eq!(manager.checkpoints().len(), 3);
    }

    #[test]
    fn begins_where_there_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let open = |keep: Option<usize>| CheckpointManager::new(Checkpoint::new(), folder.path(), keep);
        let text = open(Some(0)).err().unwrap().to_string();
        assert_eq!(text, "expected a positive number or None for `max_to_keep`, got 0");
        let begun = std::cell::Cell::new(0);
        let mut manager = open(None).unwrap().init_fn(|| {
            begun.set(begun.get() + 1);
            Ok(())
        });
        assert_eq!(manager.restore_or_initialize().unwrap(), None);
        let saved = manager.save().unwrap();
        assert_eq!(manager.restore_or_initialize().unwrap(), Some(saved));
        assert_eq!(begun.get(), 1);
    }
}
