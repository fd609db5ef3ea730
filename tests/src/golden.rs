//! The suite: every case on every runtime.

use crate::bundle::Bundle;
use crate::case::{Case, compare, compare_bits};
use crate::coverage::Coverage;
use crate::fixtures::Folder;
use crate::runtimes::{self, COMPILED, CORTEX_M, DEVICE, EAGER, Outputs, Traced};
use crate::skips::Skips;
use crate::{checks, dtypes, op_cases, state_cases};
use anyhow::{Context, Result, anyhow};
use gradlet_core::DType;
use gradlet_core::device::AlignedBytes;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// How many cases passed, failed and were skipped; each counts once on each runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Right, and on other runtimes than the eager one also bit for bit as there.
    pub passed: usize,
    /// Wrong, or neither known nor in the list of skips.
    pub failed: usize,
    /// In the list of skips.
    pub skipped: usize,
}

/// A machine that is handed a file of cases and gives back a file of answers, both as in [`crate::bundle`].
pub type Machine<'a> = &'a mut dyn FnMut(&[u8]) -> Result<Vec<u8>>;

/// The folder of golden vectors that this package has.
pub fn own_folder() -> PathBuf {
    fixtures("ops")
}

/// A folder of the fixtures that this package has.
pub fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// The folders of cases that are not for all runtimes, but of files and data.
pub fn data_folders() -> Vec<PathBuf> {
    ["checkpoint", "data", "events", "image", "tfrecord"].map(fixtures).into()
}

/// Runs every case of `folders`, and prints failures, the ops that are not known, and last
/// `N passed, M failed, K skipped`. Without a machine the Cortex-M is not run, which is said on stderr.
///
/// Fails where a folder cannot be read or the machine does not answer; wrong outputs are counted instead.
pub fn run(folders: &[PathBuf], cortex_m: Option<Machine<'_>>) -> Result<Counts> {
    let mut skips = Skips::parse(crate::skips::COMMITTED)?;
    run_with(folders, cortex_m, &mut skips, &mut Coverage::default())
}

/// As [`run`], with another list of skips; notes in `coverage` what was computed.
pub fn run_with(folders: &[PathBuf], cortex_m: Option<Machine<'_>>, skips: &mut Skips, coverage: &mut Coverage) -> Result<Counts> {
    let mut suite = Suite { skips, coverage, counts: Counts::default(), unknown: BTreeMap::new(), board: cortex_m.is_some() };
    let mut queue = Queue::default();
    for folder in folders {
        if let Some(counts) = checks::run(folder)? {
            suite.add(folder, counts);
            continue;
        }
        let own = *folder == own_folder();
        let cases = read(folder)?;
        if cases.is_empty() {
            suite.counts.failed += 1;
            println!("{}: no cases of a form that is known", folder.display());
        }
        for case in cases {
            // Of cases that nobody has looked at, only what their reference says is judged.
            match dtypes::variants(&case) {
                _ if !own => (),
                Ok(variants) => variants.into_iter().for_each(|variant| suite.case(variant, &mut queue)),
                Err(error) => suite.fail(&case, EAGER, &format!("in other float types: {error:#}")),
            }
            suite.case(case, &mut queue);
        }
    }
    match cortex_m {
        Some(machine) => suite.machine(&queue, machine)?,
        None => eprintln!("{CORTEX_M} was not run: there is no machine"),
    }
    Ok(suite.summary())
}

/// Every case of a folder, whatever its kind.
pub fn read(path: &Path) -> Result<Vec<Case>> {
    let mut folder = Folder::open(path)?;
    let kinds = [op_cases::read, state_cases::optimizers, state_cases::metrics, state_cases::schedules];
    let mut cases = Vec::new();
    for kind in kinds {
        cases.extend(kind(&mut folder).with_context(|| path.display().to_string())?);
    }
    Ok(cases)
}

/// The cases for the machine, with what eager execution gave.
#[derive(Default)]
struct Queue {
    bundle: Bundle,
    cases: Vec<(Case, Option<Outputs>, Computed)>,
}

/// The ops that a case computes, with their element types.
type Computed = Vec<(&'static str, DType)>;

struct Suite<'s> {
    skips: &'s mut Skips,
    coverage: &'s mut Coverage,
    counts: Counts,
    unknown: BTreeMap<String, usize>,
    board: bool,
}

impl Suite<'_> {
    /// Counts the cases of a folder that are not for all runtimes.
    fn add(&mut self, folder: &Path, counts: Counts) {
        println!("{}: {} passed, {} failed", folder.display(), counts.passed, counts.failed);
        self.counts.passed += counts.passed;
        self.counts.failed += counts.failed;
    }

    fn case(&mut self, case: Case, queue: &mut Queue) {
        let Some(body) = case.body.clone() else { return self.unknown(&case) };
        let eager = caught(|| runtimes::eager(&case, &body));
        let reference = eager.as_ref().ok().cloned();
        let traced = caught(|| Traced::new(&case, &body));
        let computed: Computed = traced.iter().flat_map(Traced::ops).collect();
        self.check(&case, EAGER, eager, None, &computed);
        // Before the first run, which changes variables.
        let artifact = each(&traced, |traced| traced.export(&case));
        self.check(&case, COMPILED, each(&traced, Traced::run), reference.as_ref(), &computed);
        let device = each(&artifact, |artifact| runtimes::device(&case, artifact));
        self.check(&case, DEVICE, device, reference.as_ref(), &computed);
        self.enqueue(case, artifact, (reference, computed), queue);
    }

    /// A case that cannot be run: skipped where the list says so, else wrong.
    fn unknown(&mut self, case: &Case) {
        *self.unknown.entry(case.group.clone()).or_default() += 1;
        let board = self.board;
        for runtime in runtimes::NAMES.into_iter().filter(|&name| board || name != CORTEX_M) {
            if self.skips.skip(case, runtime) {
                self.counts.skipped += 1
            } else {
                self.fail(case, runtime, "not known, and not in the list of skips")
            }
        }
    }

    /// Judges what a runtime gave for a case.
    fn check(&mut self, case: &Case, runtime: &str, outputs: Result<Outputs>, eager: Option<&Outputs>, computed: &Computed) {
        if self.skips.skip(case, runtime) {
            self.counts.skipped += 1;
            return;
        }
        let problems = match (&outputs, eager) {
            (Err(error), _) => vec![format!("{error:#}")],
            (Ok(outputs), None) => compare(&case.wanted, outputs, case.tolerance),
            (Ok(outputs), Some(eager)) => {
                let mut problems = compare(&case.wanted, outputs, case.tolerance);
                problems.extend(compare_bits(&case.wanted, eager, outputs));
                problems
            }
        };
        if !problems.is_empty() {
            return self.fail(case, runtime, &problems.join("; "));
        }
        self.counts.passed += 1;
        self.coverage.add(runtime, computed);
    }

    fn fail(&mut self, case: &Case, runtime: &str, problem: &str) {
        self.counts.failed += 1;
        println!("{runtime}: {}: {problem}", case.id);
    }

    fn enqueue(&mut self, case: Case, artifact: Result<AlignedBytes>, known: (Option<Outputs>, Computed), queue: &mut Queue) {
        // Asked without a machine, too: then its lines are in use.
        let skipped = self.skips.skip(&case, CORTEX_M);
        match artifact {
            _ if !self.board => (),
            _ if skipped => self.counts.skipped += 1,
            Err(error) => self.fail(&case, CORTEX_M, &format!("{error:#}")),
            Ok(artifact) => {
                queue.bundle.push(&artifact, case.inputs.iter().map(|input| input.bytes.as_slice()));
                queue.cases.push((case, known.0, known.1));
            }
        }
    }

    fn machine(&mut self, queue: &Queue, machine: Machine<'_>) -> Result<()> {
        let answers = queue.bundle.answers(&machine(queue.bundle.bytes())?).context(CORTEX_M)?;
        for ((case, eager, computed), outputs) in queue.cases.iter().zip(answers) {
            self.check(case, CORTEX_M, outputs.context("the machine did not run it"), eager.as_ref(), computed);
        }
        Ok(())
    }

    fn summary(&self) -> Counts {
        let unknown: Vec<String> = self.unknown.iter().map(|(group, count)| format!("{group} {count}")).collect();
        if !unknown.is_empty() {
            println!("not known yet, with their cases: {}", unknown.join(", "));
        }
        let Counts { passed, failed, skipped } = self.counts;
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        self.counts
    }
}

/// `work`'s result; a panic is an error.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(anyhow!("it panicked")))
}

/// `next` of what came before, if that was no error.
fn each<T, U>(before: &Result<T>, next: impl FnOnce(&T) -> Result<U>) -> Result<U> {
    match before {
        Ok(value) => caught(|| next(value)),
        Err(error) => Err(anyhow!("{error:#}")),
    }
}
