//! Folders of checkpoints.

use super::bundle::append;
use super::state::State;
use super::{Checkpoint, scope};
use crate::files::FileResult;
use crate::files::{remove, remove_leftovers};
use gradlet_core::{Error, Result, Scope, Variable};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Keeps the last checkpoints of a folder, and deletes those before them: TensorFlow's `tf.train.CheckpointManager`.
///
/// They are called `ckpt-1`, `ckpt-2` and so on; the file `checkpoint` beside them says which there are. TensorFlow can go on with the
/// folder, and a manager with TensorFlow's. One program at a time may save there.
///
/// A save is whole or did not happen, whenever the program or the computer stops: the file `checkpoint` names a checkpoint only once that
/// is on the disk, and older ones are deleted only after that.
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
pub struct CheckpointManager<'a> {
    checkpoint: Checkpoint<'a>,
    directory: PathBuf,
    checkpoint_name: String,
    max_to_keep: Option<usize>,
    keep_checkpoint_every_n_hours: Option<f64>,
    interval: Option<Interval>,
    init_fn: Option<Box<dyn Fn() -> Result<()> + 'a>>,
    latest: Option<PathBuf>,
    /// What may be deleted one day, the oldest first, and when it was saved.
    kept: Vec<(PathBuf, f64)>,
    last_preserved: f64,
    clock: fn() -> f64,
}

/// Checkpoints that are some steps apart.
struct Interval {
    step_counter: Variable,
    steps: i64,
    last: Option<i64>,
}

/// Whether two paths are of one folder.
fn same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |time| time.as_secs_f64())
}

impl<'a> CheckpointManager<'a> {
    /// Manages the checkpoints of `directory`, which need not exist yet: those that its file `checkpoint` names, and new ones. Keeps so
    /// many; with `None`, all.
    ///
    /// Fails where `max_to_keep` is 0, and where the file `checkpoint` is damaged.
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
            // So that what is saved at once is later.
            last_preserved: clock() - 1.0,
            clock,
        };
        if let Some(state) = State::read(&manager.directory)? {
            manager.recover(state);
        }
        Ok(manager)
    }

    /// Goes on with what the folder has. A clock that was set back makes no checkpoint older than it is.
    fn recover(&mut self, state: State) {
        let now = (self.clock)();
        let State { model_checkpoint_path, all_model_checkpoint_paths: paths, all_model_checkpoint_timestamps: mut times, .. } = state;
        // A folder can be named in several ways: its own checkpoints are named in that of this manager.
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

    /// What files are called before their number: `ckpt`, if it is not given.
    pub fn checkpoint_name(self, checkpoint_name: impl Into<String>) -> Self {
        CheckpointManager { checkpoint_name: checkpoint_name.into(), ..self }
    }

    /// A checkpoint that is no longer among the last ones is kept for good if it was saved at least so many hours after the last one that
    /// was kept for good.
    pub fn keep_checkpoint_every_n_hours(self, hours: f64) -> Self {
        CheckpointManager { keep_checkpoint_every_n_hours: Some(hours), ..self }
    }

    /// Has [`save_if_due`](CheckpointManager::save_if_due) wait until `step_counter`, an i64, is so many steps past the last checkpoint.
    pub fn checkpoint_interval(self, step_counter: &Variable, steps: i64) -> Self {
        let interval = Interval { step_counter: step_counter.clone(), steps, last: None };
        CheckpointManager { interval: Some(interval), ..self }
    }

    /// What [`restore_or_initialize`](CheckpointManager::restore_or_initialize) does where there is no checkpoint.
    pub fn init_fn(self, init_fn: impl Fn() -> Result<()> + 'a) -> Self {
        CheckpointManager { init_fn: Some(Box::new(init_fn)), ..self }
    }

    /// The folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What is saved.
    pub fn checkpoint(&self) -> &Checkpoint<'a> {
        &self.checkpoint
    }

    /// The latest checkpoint that was saved, here or by who had the folder before.
    pub fn latest_checkpoint(&self) -> Option<&Path> {
        self.latest.as_deref()
    }

    /// The checkpoints that are kept, the oldest first. Those that are kept for good are not among them.
    pub fn checkpoints(&self) -> Vec<&Path> {
        self.kept.iter().map(|(path, _)| path.as_path()).collect()
    }

    /// Saves the next checkpoint, whose number counts how often the checkpoint was saved, and deletes those that are too many. Gives the
    /// prefix of its files.
    ///
    /// A file that cannot be deleted stays, and is told on stderr. Fails where the files of the new checkpoint cannot be written; those
    /// before stay as they were.
    pub fn save(&mut self) -> FileResult<PathBuf> {
        self.save_as(None)
    }

    /// Saves the checkpoint of this number, such as that of a batch: TensorFlow's `save(checkpoint_number=…)`. As
    /// [`save`](CheckpointManager::save) otherwise.
    ///
    /// One that has this number already is written anew, and is the latest then.
    #[doc(alias = "checkpoint_number")]
    pub fn save_with_checkpoint_number(&mut self, checkpoint_number: u64) -> FileResult<PathBuf> {
        self.save_as(Some(checkpoint_number))
    }

    /// Saves the next checkpoint if the step counter is far enough past the last one, or if none was saved yet: TensorFlow's `save` with a
    /// `checkpoint_interval`. Without [an interval](CheckpointManager::checkpoint_interval) always.
    ///
    /// Fails as [`save`](CheckpointManager::save), and where the step counter is no i64.
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
        // What is deleted stays listed until it is gone: whoever goes on after a crash deletes the rest of it.
        self.record()?;
        if self.sweep() {
            self.record()?;
        }
        remove_leftovers(&self.directory);
        Ok(prefix)
    }

    /// Deletes or preserves what is too much. Says whether there was something.
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

    /// Restores the latest checkpoint, and gives the prefix of its files. Where there is none, calls
    /// [`init_fn`](CheckpointManager::init_fn).
    ///
    /// Fails as [`Checkpoint::restore`].
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

/// Deletes the files of a checkpoint: the index first, without which it is none.
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

/// Whether a file's name ends in `.data-?????-of-?????` after the prefix.
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

    /// The numbers that the manager keeps, those that the folder has, and when the last one was preserved.
    fn kept(manager: &CheckpointManager<'_>) -> (Vec<u32>, Vec<u32>, f64) {
        let entries = manager.directory().read_dir().unwrap().map(|entry| entry.unwrap().path());
        let indices = entries.filter(|path| path.extension().is_some_and(|ending| ending == "index"));
        let mut there: Vec<u32> = indices.map(|path| number(&path.with_extension(""))).collect();
        there.sort_unstable();
        (manager.checkpoints().into_iter().map(number).collect(), there, manager.last_preserved)
    }

    /// What TensorFlow 2.21 keeps at these times.
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

        // The clock was set back, a little and then to before all that is there.
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

    /// A save is not lost because something else is in the way.
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

    /// A save that was killed leaves a temporary file, which does not stay for ever.
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
