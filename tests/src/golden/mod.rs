//! The suite: every case on every runtime.

pub mod bundle;
pub mod case;
pub mod checkpoint_cases;
pub mod checks;
pub mod coverage;
pub mod data_cases;
mod dropout_case;
pub mod dtypes;
pub mod event_cases;
pub mod example_cases;
pub mod fixtures;
pub mod image_cases;
pub mod op_cases;
pub mod ops_table;
pub mod parsed_json;
pub mod repeated;
pub mod rounded;
pub mod runtimes;
pub mod skips;
pub mod state_cases;
pub mod tfrecord_cases;

use anyhow::{Context, Result, anyhow};
use bundle::Bundle;
use case::{Body, Case, compare_bits, compare_known};
use coverage::Coverage;
use fixtures::Folder;
use gradlet_core::device::AlignedBytes;
use gradlet_core::{DType, Device, ops};
use repeated::repeated;
use runtimes::{COMPILED, CORTEX_M, CPU, DEVICE, EAGER, NAMES, Outputs, Traced};
use skips::Skips;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// How many cases passed, failed and were skipped; each counts once on each runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Right, and on runtimes with portable kernels also bit for bit as op by op.
    pub passed: usize,
    /// Wrong, or neither known nor in the list of skips.
    pub failed: usize,
    /// In the list of skips.
    pub skipped: usize,
}

/// A machine that is handed a file of cases and gives back a file of answers, both as in [`bundle`].
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

/// The folders of a run that names none: all of this package for all runtimes, the cases of ops for a selection.
fn defaults(runtimes: &[&str]) -> Vec<PathBuf> {
    let data = if runtimes.len() == NAMES.len() { data_folders() } else { Vec::new() };
    [vec![own_folder()], data].concat()
}

/// Runs every case of `folders` on `runtimes`; of the project's own folders where none is named, and on all [`NAMES`] where none is.
/// Prints failures, the ops that are not known, and last `N passed, M failed, K skipped`. Cases of files and data are judged once,
/// whatever the runtimes are. Without a machine the Cortex-M is not run, which is said on stderr.
///
/// Fails where a runtime is not known, a folder cannot be read or the machine does not answer; wrong outputs are counted instead.
pub fn run(runtimes: &[&str], folders: &[PathBuf], cortex_m: Option<Machine<'_>>) -> Result<Counts> {
    let mut skips = Skips::parse(skips::COMMITTED)?;
    run_with(runtimes, folders, cortex_m, &mut skips, &mut Coverage::default())
}

/// As [`run`], with another list of skips; notes in `coverage` what was computed.
pub fn run_with(
    runtimes: &[&str],
    folders: &[PathBuf],
    cortex_m: Option<Machine<'_>>,
    skips: &mut Skips,
    coverage: &mut Coverage,
) -> Result<Counts> {
    let runtimes = runtimes::select(runtimes)?;
    let (fast, portable): (Vec<_>, Vec<_>) = runtimes.iter().partition(|name| **name == CPU);
    let own = defaults(&runtimes);
    let mut suite = Suite { skips, coverage, counts: Counts::default(), unknown: BTreeMap::new(), board: cortex_m.is_some() };
    let mut queue = Queue::default();
    for folder in if folders.is_empty() { &own } else { folders } {
        if let Some(counts) = checks::run(folder)? {
            suite.add(folder, counts);
            continue;
        }
        let cases = read(folder)?;
        if cases.is_empty() {
            suite.counts.failed += 1;
            println!("{}: no cases of a form that is known", folder.display());
        }
        for case in cases {
            // Of cases that nobody has looked at, only what their reference says is judged.
            if *folder == own_folder() {
                suite.variants(&ops::portable_cpu(), &case, &portable, &mut queue);
                suite.variants(&gradlet::cpu(), &case, &fast, &mut queue);
            }
            suite.case(case, &runtimes, &mut queue);
        }
    }
    match cortex_m {
        _ if !runtimes.contains(&CORTEX_M) => (),
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

    /// A case in other float types, on runtimes that compute with the kernels of `device`.
    fn variants(&mut self, device: &Device, case: &Case, runtimes: &[&'static str], queue: &mut Queue) {
        let Some(first) = runtimes.first() else { return };
        match dtypes::variants(device, case) {
            Ok(variants) => variants.into_iter().for_each(|variant| self.case(variant, runtimes, queue)),
            Err(error) => self.fail(case, first, &format!("in other float types: {error:#}")),
        }
    }

    fn case(&mut self, case: Case, runtimes: &[&'static str], queue: &mut Queue) {
        let Some(body) = case.body.clone() else { return self.unknown(&case, runtimes) };
        let eager = caught(|| runtimes::eager(&ops::portable_cpu(), &case, &body));
        let reference = eager.as_ref().ok();
        let traced = caught(|| Traced::new(&case, &body));
        let computed: Computed = traced.iter().flat_map(Traced::ops).collect();
        // Before the first run, which changes variables.
        let artifact = each(&traced, |traced| traced.export(&case));
        for runtime in runtimes {
            let problems = match *runtime {
                EAGER => judge(&case, &eager, None),
                COMPILED => judge(&case, &each(&traced, Traced::run), reference),
                CPU => self.cpu(&case, &body),
                DEVICE => judge(&case, &each(&artifact, |artifact| runtimes::device(&case, artifact)), reference),
                _ => continue,
            };
            self.settle(&case, runtime, &problems, &computed);
        }
        if runtimes.contains(&CORTEX_M) {
            self.enqueue(case, artifact, (eager.ok(), computed), queue);
        }
    }

    /// The problems of the host's device: op by op, compiled, and compiled with enough elements for fused blocks.
    fn cpu(&mut self, case: &Case, body: &Body) -> Vec<String> {
        let device = gradlet::cpu();
        let told = |how: &str, problems: Vec<String>| problems.into_iter().map(|problem| format!("{how}: {problem}")).collect::<Vec<_>>();
        let problems = told("op by op", judge(case, &caught(|| runtimes::eager(&device, case, body)), None));
        if self.skips.skip(case, COMPILED) {
            return problems;
        }
        let traced = caught(|| Traced::on(&device, case, body));
        let compiled = told("compiled", judge(case, &each(&traced, Traced::run), None));
        let blocks = match each(&traced, |traced| repeated(case, traced)) {
            Ok(Some(many)) => judge(&many, &caught(|| Traced::on(&device, &many, body)?.run()), None),
            Ok(None) => Vec::new(),
            Err(error) => vec![format!("{error:#}")],
        };
        [problems, compiled, told("repeated", blocks)].concat()
    }

    /// A case that cannot be run: skipped where the list says so, else wrong.
    fn unknown(&mut self, case: &Case, runtimes: &[&'static str]) {
        *self.unknown.entry(case.group.clone()).or_default() += 1;
        let board = self.board;
        for runtime in runtimes.iter().filter(|name| board || **name != CORTEX_M) {
            if self.skips.skip(case, runtime) {
                self.counts.skipped += 1
            } else {
                self.fail(case, runtime, "not known, and not in the list of skips")
            }
        }
    }

    /// Counts what a runtime gave for a case.
    fn settle(&mut self, case: &Case, runtime: &str, problems: &[String], computed: &Computed) {
        match (self.skips.skip(case, runtime), problems.is_empty()) {
            (true, true) => self.fail(case, runtime, "it passes, but is in the list of skips"),
            (true, false) => self.counts.skipped += 1,
            (false, false) => self.fail(case, runtime, &problems.join("; ")),
            (false, true) => {
                self.counts.passed += 1;
                self.coverage.add(runtime, computed);
            }
        }
    }

    fn fail(&mut self, case: &Case, runtime: &str, problem: &str) {
        self.counts.failed += 1;
        println!("{runtime}: {}: {problem}", case.id);
    }

    fn enqueue(&mut self, case: Case, artifact: Result<AlignedBytes>, known: (Option<Outputs>, Computed), queue: &mut Queue) {
        match artifact {
            // Its lines in the list are in use without a machine, too.
            _ if !self.board => drop(self.skips.skip(&case, CORTEX_M)),
            Err(error) => self.settle(&case, CORTEX_M, &[format!("{error:#}")], &known.1),
            Ok(artifact) => {
                queue.bundle.push(&artifact, case.inputs.iter().map(|input| input.bytes.as_slice()));
                queue.cases.push((case, known.0, known.1));
            }
        }
    }

    fn machine(&mut self, queue: &Queue, machine: Machine<'_>) -> Result<()> {
        let answers = queue.bundle.answers(&machine(queue.bundle.bytes())?).context(CORTEX_M)?;
        for ((case, eager, computed), outputs) in queue.cases.iter().zip(answers) {
            let problems = judge(case, &outputs.context("the machine did not run it"), eager.as_ref());
            self.settle(case, CORTEX_M, &problems, computed);
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

/// The problems of a case's outputs, compared with the reference, with bits that are known beforehand, and with the bits that the same
/// kernels gave op by op.
pub fn judge(case: &Case, outputs: &Result<Outputs>, eager: Option<&Outputs>) -> Vec<String> {
    let outputs = match outputs {
        Ok(outputs) => outputs,
        Err(error) => return vec![format!("{error:#}")],
    };
    let mut problems = compare_known(&case.wanted, &case.known, outputs, case.tolerance);
    let known = case.wanted.iter().zip(&case.known).zip(outputs);
    problems.extend(known.filter_map(|((want, known), got)| known.differs(&want.name, want.tensor_type.dtype, got)));
    problems.extend(eager.into_iter().flat_map(|eager| compare_bits(&case.wanted, eager, outputs)));
    problems
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
