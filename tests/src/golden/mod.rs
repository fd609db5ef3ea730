//! The golden suite: runs every case on every runtime.

pub mod bundle;
pub mod case;
pub mod checkpoint_cases;
pub mod checks;
mod copies;
pub mod coverage;
pub mod data_cases;
pub mod device_cases;
mod dropout_case;
pub mod dtypes;
pub mod event_cases;
pub mod example_cases;
pub mod fixtures;
pub mod image_cases;
pub mod model_cases;
pub mod op_cases;
pub mod ops_table;
pub mod parsed_json;
pub mod repeated;
pub mod rounded;
pub mod runtimes;
pub mod skips;
pub mod state_cases;
pub mod tfrecord_cases;

use crate::gpu;
use crate::hiding::Hiding;
use anyhow::{Context, Result, anyhow};
use bundle::Bundle;
use case::{Body, Case, compare_bits, compare_known};
use coverage::Coverage;
use fixtures::Folder;
use gradlet_core::device::AlignedBytes;
use gradlet_core::{DType, Device, ops};
use repeated::repeated;
use runtimes::{COMPILED, CORTEX_M, CPU, CUDA, DEVICE, EAGER, HIDING, NAMES, Outputs, Traced};
use skips::Skips;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Numbers of passed, failed and skipped cases. Each case counts once per runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cases with correct outputs. On runtimes with portable kernels, they also have the same bits as in eager execution.
    pub passed: usize,
    /// Cases with wrong outputs, and unsupported cases that are not in the list of skips.
    pub failed: usize,
    /// Cases in the list of skips.
    pub skipped: usize,
}

/// A machine that reads a file of cases and returns a file of answers, both as in [`bundle`].
pub type Machine<'a> = &'a mut dyn FnMut(&[u8]) -> Result<Vec<u8>>;

/// Returns this package's folder of golden vectors of ops.
pub fn own_folder() -> PathBuf {
    fixtures("ops")
}

/// Returns this package's folders with cases that run on every runtime: ops and models.
pub fn case_folders() -> [PathBuf; 5] {
    [own_folder(), fixtures("models"), fixtures("models_int16"), fixtures("tflm"), fixtures("tinyml")]
}

/// Returns a folder of this package's fixtures.
pub fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// Returns the folders with cases of files and data, which run only once instead of on every runtime.
pub fn data_folders() -> Vec<PathBuf> {
    ["checkpoint", "data", "devices", "events", "image", "tfrecord"].map(fixtures).into()
}

/// Returns the folders to run if the caller passes none. If all runtimes are selected, these are all folders of this package. Otherwise, it
/// is only those with cases of ops and models.
fn defaults(runtimes: &[&str]) -> Vec<PathBuf> {
    let data = if runtimes.len() == NAMES.len() { data_folders() } else { Vec::new() };
    [case_folders().to_vec(), data].concat()
}

/// Runs every case of `folders` on `runtimes`. If `folders` is empty, runs the project's own folders. If `runtimes` is empty, runs on all
/// [`NAMES`]. Prints failures, unknown ops, and finally `N passed, M failed, K skipped`. Cases of files and data run once, whatever the
/// runtimes. Without a machine, the Cortex-M is skipped, with a note on stderr.
///
/// Fails if a runtime is unknown, a folder cannot be read, or the machine does not answer. Wrong outputs are only counted.
pub fn run(runtimes: &[&str], folders: &[PathBuf], cortex_m: Option<Machine<'_>>) -> Result<Counts> {
    let mut skips = Skips::parse(skips::COMMITTED)?;
    run_with(runtimes, folders, cortex_m, &mut skips, &mut Coverage::default())
}

/// Like [`run`], with the list `skips`. Also records the computed ops in `coverage`.
pub fn run_with(
    runtimes: &[&str],
    folders: &[PathBuf],
    cortex_m: Option<Machine<'_>>,
    skips: &mut Skips,
    coverage: &mut Coverage,
) -> Result<Counts> {
    let runtimes = runtimes::select(runtimes)?;
    let (fast, others): (Vec<&str>, Vec<&str>) = runtimes.iter().partition(|name| **name == CPU);
    let (gpus, portable): (Vec<&str>, Vec<&str>) = others.into_iter().partition(|name| *name == CUDA);
    let own = defaults(&runtimes);
    let mut suite = Suite { skips, coverage, counts: Counts::default(), unknown: BTreeMap::new(), board: cortex_m.is_some() };
    let mut queue = Queue::default();
    for folder in if folders.is_empty() { &own } else { folders } {
        if let Some(counts) = checks::run(folder)? {
            suite.add(folder, counts);
            continue;
        }
        if let Some(counts) = model_cases::checksums(folder)? {
            suite.add(folder, counts);
        }
        let cases = read(folder)?;
        if cases.is_empty() {
            suite.counts.failed += 1;
            println!("{}: no cases of a known form", folder.display());
        }
        for case in cases {
            // Cases of other folders run only in their own element type, because the tolerances of the variants fit only
            // the reviewed cases.
            if *folder == own_folder() {
                suite.variants(&ops::portable_cpu(), &case, &portable, &mut queue);
                suite.variants(&gradlet::cpu(), &case, &fast, &mut queue);
                suite.variants(&ops::portable_cpu(), &case, &gpus, &mut queue);
            }
            suite.case(case, &runtimes, &mut queue);
        }
    }
    match cortex_m {
        _ if !runtimes.contains(&CORTEX_M) => (),
        Some(machine) => suite.machine(&queue, machine)?,
        None => eprintln!("{CORTEX_M} was not run, because there is no machine for it"),
    }
    Ok(suite.summary())
}

/// Reads every case of a folder, of any kind.
pub fn read(path: &Path) -> Result<Vec<Case>> {
    let mut folder = Folder::open(path)?;
    let kinds = [op_cases::read, state_cases::optimizers, state_cases::metrics, state_cases::schedules, model_cases::read];
    let mut cases = Vec::new();
    for kind in kinds {
        cases.extend(kind(&mut folder).with_context(|| path.display().to_string())?);
    }
    Ok(cases)
}

/// Cases for the machine, with the outputs of eager execution.
#[derive(Default)]
struct Queue {
    bundle: Bundle,
    cases: Vec<(Case, Option<Outputs>, Computed)>,
}

/// Ops of a case, with their element types.
type Computed = Vec<(&'static str, DType)>;

struct Suite<'s> {
    skips: &'s mut Skips,
    coverage: &'s mut Coverage,
    counts: Counts,
    unknown: BTreeMap<String, usize>,
    board: bool,
}

impl Suite<'_> {
    /// Adds the counts of a folder whose cases run only once.
    fn add(&mut self, folder: &Path, counts: Counts) {
        println!("{}: {} passed, {} failed, {} skipped", folder.display(), counts.passed, counts.failed, counts.skipped);
        self.counts.passed += counts.passed;
        self.counts.failed += counts.failed;
        self.counts.skipped += counts.skipped;
    }

    /// Runs a case in the other float types, on runtimes with the kernels of `device`.
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
        // Export before the first run, because a run changes variables.
        let artifact = each(&traced, |traced| traced.export(&case));
        for runtime in runtimes {
            let problems = match *runtime {
                EAGER => judge(&case, &eager, None),
                COMPILED => judge(&case, &each(&traced, Traced::run), reference),
                CPU => self.cpu(&case, &body),
                HIDING => self.hiding(&case, &body, reference),
                CUDA => self.cuda(&case, &body),
                DEVICE => judge(&case, &each(&artifact, |artifact| runtimes::device(&case, artifact)), reference),
                _ => continue,
            };
            self.settle(&case, runtime, &problems, &computed);
        }
        if runtimes.contains(&CORTEX_M) {
            self.enqueue(case, artifact, (eager.ok(), computed), queue);
        }
    }

    /// Runs a case on the host's device: eagerly, compiled, and compiled with enough elements for fused blocks. Returns a description of
    /// each problem.
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

    /// Runs a case on a device that hides its memory: eagerly, with as few copies as possible, and compiled. Returns a description of each
    /// problem.
    fn hiding(&mut self, case: &Case, body: &Body, reference: Option<&Outputs>) -> Vec<String> {
        let hiding = Hiding::new();
        let (outputs, counts) = hiding.during(|| caught(|| runtimes::eager(&hiding.device, case, body)));
        let mut problems = judge(case, &outputs, reference);
        let traced = caught(|| Traced::on(&hiding.device, case, body));
        // A model may have constants that no result depends on, and conditions of loops, which the host reads.
        if !case.group.starts_with("model:") {
            problems.extend(copies::superfluous(case, traced.as_ref().ok(), counts));
        }
        if !self.skips.skip(case, COMPILED) {
            let compiled = judge(case, &each(&traced, Traced::run), reference);
            problems.extend(compiled.into_iter().map(|problem| format!("compiled: {problem}")));
        }
        problems
    }

    /// Runs a case on a strict and on a fast device of a GPU. Returns a description of each problem.
    fn cuda(&mut self, case: &Case, body: &Body) -> Vec<String> {
        let (Ok(strict), Ok(fast)) = (gpu::device(), gpu::fast_device()) else { return vec!["there is no GPU".into()] };
        let problems = self.cuda_device(&strict, case, body);
        // A fast device adds in another order, so the last bit of a sum is not known.
        let mut case = case.clone();
        case.known.iter_mut().for_each(|known| known.bits.clear());
        let of_fast = self.cuda_device(&fast, &case, body).into_iter().map(|problem| format!("fast: {problem}"));
        problems.into_iter().chain(of_fast).collect()
    }

    /// Runs a case on a device of a GPU: eagerly and compiled, twice each. Returns a description of each problem.
    fn cuda_device(&mut self, device: &Device, case: &Case, body: &Body) -> Vec<String> {
        let twice = |run: &dyn Fn() -> Result<Outputs>| {
            let outputs = caught(run);
            let again = outputs.as_ref().ok().and_then(|first| Some(compare_bits(&case.wanted, first, &caught(run).ok()?)));
            [judge(case, &outputs, None), again.unwrap_or_default()].concat()
        };
        let mut problems = twice(&|| runtimes::eager(device, case, body));
        if !self.skips.skip(case, COMPILED) {
            let compiled = twice(&|| Traced::on(device, case, body)?.run());
            problems.extend(compiled.into_iter().map(|problem| format!("compiled: {problem}")));
        }
        problems
    }

    /// Counts a case that the suite cannot run, for each of `runtimes`: as skipped if it is in the list of skips, and as failed otherwise.
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

    /// Counts the result of a case on a runtime.
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
            // Without a machine, mark the case's lines in the list as used.
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

/// Returns a description of each problem of a case's outputs, or an empty list if they are correct. Compares them with the reference, with
/// the exact bits if they are known, and with `eager`, the outputs of eager execution on the same kernels, if given.
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

/// Returns the result of `work`. A panic becomes an error.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(anyhow!("it panicked")))
}

/// Applies `next` to the value of `before`. If `before` is an error, returns that error.
fn each<T, U>(before: &Result<T>, next: impl FnOnce(&T) -> Result<U>) -> Result<U> {
    match before {
        Ok(value) => caught(|| next(value)),
        Err(error) => Err(anyhow!("{error:#}")),
    }
}
