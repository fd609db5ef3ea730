//! A test that kills a process at every phase of a save, 1000 times in all, and checks the checkpoint that is left.

use super::{Numbered, latest};
use crate::files::{Operation, watch};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

const KILLS: usize = 1000;

/// Phases of a save, in the order in which they happen. `train` is the time between two saves.
const PHASES: [&str; 23] = [
    "train",
    "data create",
    "data write",
    "data fsync",
    "data rename",
    "data fsync folder",
    "index create",
    "index write",
    "index fsync",
    "index rename",
    "index fsync folder",
    "state create",
    "state write",
    "state fsync",
    "state rename",
    "state fsync folder",
    "delete index",
    "delete data",
    "second state create",
    "second state write",
    "second state fsync",
    "second state rename",
    "second state fsync folder",
];

const FOLDER: &str = "GRADLET_TEST_SAVES_TO";
/// Environment variable with the phase in which the process waits to be killed, then the number of the save, counted from 0.
const WAITS: &str = "GRADLET_TEST_WAITS_IN";

/// Converter from the file operations of a save to names of phases. A phase is named after the file that the operation changes. A
/// save creates its files in the order of `FILES`.
#[derive(Default)]
struct Phases {
    /// Names of the files, by their temporary paths. A path can be used again after a rename.
    files: HashMap<PathBuf, String>,
    created: usize,
}

impl Phases {
    const FILES: [&'static str; 4] = ["data", "index", "state", "second state"];

    fn name(&mut self, operation: Operation<'_>) -> String {
        let file = |path: &Path| self.files.get(path).cloned().unwrap_or_else(|| panic!("{} was not made", path.display()));
        match operation {
            Operation::Create(path) => {
                let name = Self::FILES[self.created];
                self.created += 1;
                self.files.insert(path.into(), name.into());
                format!("{name} create")
            }
            Operation::Write(path, _) => file(path) + " write",
            Operation::Sync(path) => file(path) + " fsync",
            Operation::Rename(from, to) => {
                let (name, to) = (file(from), to.to_str().unwrap());
                assert!(match name.as_str() {
                    "data" => to.contains(".data-"),
                    "index" => to.ends_with(".index"),
                    _ => to.ends_with("checkpoint"),
                });
                format!("{name} rename")
            }
            Operation::SyncFolder(_) => format!("{} fsync folder", Self::FILES[self.created - 1]),
            Operation::Remove(path) => {
                format!("delete {}", if path.extension().is_some_and(|ending| ending == "index") { "index" } else { "data" })
            }
        }
    }
}

/// Not a test: the body of the process that `a_killed_save_is_whole_or_was_none` kills.
#[test]
#[ignore = "saves until it is killed"]
fn saves_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let waits = std::env::var(WAITS).unwrap_or_default();
    let say = |line: &str| std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
    let numbered = Numbered::new();
    let mut manager = numbered.manager(Path::new(&folder)).unwrap();
    manager.restore_or_initialize().unwrap();
    let first = numbered.number().unwrap() + 1;
    for number in first.. {
        say(&format!("train {number}"));
        let waits = waits.strip_suffix(&format!(" {}", number - first)).map(String::from);
        let wait = move |phase: &str| {
            if waits.as_deref() == Some(phase) {
                std::thread::sleep(Duration::from_secs(60));
            }
        };
        wait("train");
        numbered.set(number);
        let mut phases = Phases::default();
        let watcher = move |operation: Operation<'_>| {
            let phase = phases.name(operation);
            say(&format!("{phase} {number}"));
            wait(&phase);
        };
        watch::during(watcher, || manager.save()).unwrap();
        say(&format!("saved {number}"));
    }
}

/// A child process that saves checkpoints until it is killed.
struct Saving {
    child: Child,
    lines: BufReader<ChildStderr>,
    /// Number of the last save that the process finished.
    saved: Option<u32>,
    phase: String,
}

impl Saving {
    fn start(folder: &Path, waits: &str) -> Saving {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = concat!(module_path!(), "::saves_until_it_is_killed");
        command.args(["--exact", test.split_once("::").unwrap().1, "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(FOLDER, folder).env(WAITS, waits).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Saving { child, lines, saved: None, phase: String::new() }
    }

    /// Reads the next line that the process reported. Returns `None` once the process is dead.
    fn next(&mut self) -> Option<()> {
        let mut line = String::new();
        // The kill can cut the last line off.
        self.lines.read_line(&mut line).unwrap();
        let (phase, number) = line.strip_suffix('\n')?.rsplit_once(' ')?;
        match phase {
            "saved" => self.saved = Some(number.parse().unwrap()),
            phase => self.phase = phase.into(),
        }
        Some(())
    }

    /// Kills the process, then reads the lines that it reported before but that were not read yet.
    fn kill(mut self) -> Saving {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while self.next().is_some() {}
        self
    }
}

#[test]
fn a_killed_save_is_whole_or_was_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("save");
    let (mut histogram, mut before) = (BTreeMap::new(), None);
    let begin = Instant::now();
    for kill in 0..KILLS {
        // The third save of a process is the first one that always deletes an old checkpoint.
        let (target, save) = (PHASES[kill % PHASES.len()], kill / PHASES.len() % 2 + 2);
        // In every other round, the process waits in the target phase. In the other rounds it keeps running until the signal arrives.
        let waits = (kill / PHASES.len()).is_multiple_of(2);
        let mut saving = Saving::start(&folder, &if waits { format!("{target} {save}") } else { String::new() });
        let mut trained = 0;
        loop {
            saving.next().unwrap_or_else(|| panic!("kill {kill}: the process ended by itself, in {}", saving.phase));
            trained += usize::from(saving.phase == "train");
            if saving.phase == target && trained > save {
                break;
            }
        }
        if !waits {
            let delay = Duration::from_micros((kill as u64).wrapping_mul(2654435761) % 400);
            let from = Instant::now();
            while from.elapsed() < delay {}
        }
        let saving = saving.kill();
        let found = latest(&folder).unwrap();
        let saved = saving.saved.or(before);
        let next = saved.map_or(1, |saved| saved + 1);
        assert!(found == saved || found == Some(next), "kill {kill} in {}: {saved:?} was saved, {found:?} is there", saving.phase);
        let counts = histogram.entry(saving.phase).or_insert([0, 0]);
        counts[usize::from(found != saved)] += 1;
        before = found;
    }
    println!("{KILLS} kills in {:.1} s; the save they fell in:", begin.elapsed().as_secs_f64());
    println!("{:<28} {:>12} {:>12}", "phase", "never was", "is whole");
    for (phase, [old, new]) in &histogram {
        println!("{phase:<28} {old:>12} {new:>12}");
    }
    let missing: Vec<&str> = PHASES.into_iter().filter(|phase| !histogram.contains_key(*phase)).collect();
    assert!(missing.is_empty(), "no kill fell in {missing:?}");
}
