//! Times of the ops on the device, as a timeline for TensorBoard's Profile tab.

use crate::files::{FileError, FileResult};
use crate::tensorboard::profiler::{Line, Plane, Span, Stat, Timeline};
use gradlet_core::artifact::describe::{Description, InstructionInfo};
use gradlet_core::runtime::checkpoint::Identity;
use gradlet_core::runtime::telemetry::Hello;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Times of some instructions of a run, from one frame.
pub struct Part<'a> {
    pub step: u32,
    pub total: u32,
    pub first: u32,
    pub of: u32,
    pub at: u32,
    pub ticks: &'a [u8],
}

/// Collector of the times of runs from several frames. It writes each run as a profile.
pub struct Profiles {
    logdir: PathBuf,
    pub model: Option<(PathBuf, Description)>,
    clock: Option<Clock>,
    /// The latest run of each signature, until all its parts and the description of the clock are received.
    runs: BTreeMap<String, Run>,
    /// Number of runs that were replaced by later ones before the clock was described.
    unclocked: usize,
    pub written: Vec<PathBuf>,
}

struct Clock {
    sender: String,
    counts: String,
    hz: u32,
}

impl Clock {
    /// Converts a number of clock ticks to picoseconds.
    fn ps(&self, ticks: u32) -> u64 {
        (u128::from(ticks) * 1_000_000_000_000 / u128::from(self.hz.max(1))) as u64
    }
}

struct Run {
    step: u32,
    total: u32,
    first: u32,
    of: u32,
    /// Ticks of each instruction, by its number relative to `first`.
    ticks: BTreeMap<u32, u32>,
}

impl Run {
    fn is_whole(&self) -> bool {
        self.ticks.len() as u32 == self.of
    }
}

/// Maximum number of instructions of a signature. Operands are numbered with 16 bits, so no artifact has more.
const MOST: u32 = 1 << 20;

impl Profiles {
    pub fn new(logdir: &Path) -> Profiles {
        Profiles { logdir: logdir.into(), model: None, clock: None, runs: BTreeMap::new(), unclocked: 0, written: Vec::new() }
    }

    /// Stores the description of the device's clock, and writes the complete runs that waited for it. Fails if the device runs a
    /// different artifact than the one that names the ops.
    pub fn hello(&mut self, hello: &Hello<'_>) -> FileResult<()> {
        if let (Some((path, model)), Some(artifact)) = (&self.model, hello.artifact) {
            let own = Identity { length: model.length, checksum: model.checksum };
            if own != artifact {
                let text = format!(
                    "the device runs an artifact of {} bytes with checksum {:08x}, but this one has {} bytes and checksum {:08x}",
                    artifact.length, artifact.checksum, own.length, own.checksum
                );
                return Err(FileError::new(path, text));
            }
        }
        self.clock = Some(Clock { sender: hello.sender.into(), counts: hello.clock.into(), hz: hello.hz });
        self.write_each(Run::is_whole)
    }

    /// Adds a part to its run. A complete run is written. If the part belongs to a new run, the previous, incomplete run is written first.
    pub fn add(&mut self, signature: &str, part: Part<'_>) -> FileResult<()> {
        let Part { step, total, first, of, .. } = part;
        let known = self.runs.get(signature).map(|run| (run.step, run.total, run.first, run.of));
        if known != Some((step, total, first, of)) {
            self.write(signature)?;
        }
        let run = self.runs.entry(signature.into()).or_insert_with(|| Run { step, total, first, of, ticks: BTreeMap::new() });
        let counts = part.ticks.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        run.ticks.extend((part.at..of.min(MOST)).zip(counts));
        if run.is_whole() && self.clock.is_some() {
            self.write(signature)?;
        }
        Ok(())
    }

    /// Writes the runs that are not written yet, although they are incomplete.
    pub fn finish(&mut self) -> FileResult<()> {
        self.write_each(|_| true)
    }

    /// Returns the number of runs that could not be written because the clock is unknown.
    pub fn unclocked(&self) -> usize {
        self.unclocked + if self.clock.is_some() { 0 } else { self.runs.len() }
    }

    /// Writes the runs for which `due` is true, if the clock is known.
    fn write_each(&mut self, due: impl Fn(&Run) -> bool) -> FileResult<()> {
        let due = self.runs.iter().filter(|(_, run)| self.clock.is_some() && due(run));
        let signatures: Vec<String> = due.map(|(signature, _)| signature.clone()).collect();
        signatures.iter().try_for_each(|signature| self.write(signature))
    }

    /// Writes a signature's run, if there is one, and removes it. Counts it instead if the clock is unknown.
    fn write(&mut self, signature: &str) -> FileResult<()> {
        let Some(run) = self.runs.remove(signature) else { return Ok(()) };
        let Some(clock) = &self.clock else {
            self.unclocked += 1;
            return Ok(());
        };
        let timeline = timeline(signature, &run, clock, self.model.as_ref().map(|(_, model)| model));
        let name = format!("{signature}-{}", run.step).replace(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)), "_");
        self.written.push(timeline.write(&self.logdir, &name)?);
        Ok(())
    }
}

/// Builds a timeline of consecutive ops. The device measures the duration of each op, but not its start. The rest of the run's
/// time appears as a single span at the end.
fn timeline(signature: &str, run: &Run, clock: &Clock, model: Option<&Description>) -> Timeline {
    let named = names(signature, model);
    let mut spans = Spans { clock, passed: 0, done: Vec::new() };
    // An instruction that did not run, such as one in a branch that was not taken, has zero ticks.
    for (&at, &ticks) in run.ticks.iter().filter(|(_, ticks)| **ticks > 0) {
        let index = run.first.saturating_add(at);
        let mut stats = vec![("instruction", Stat::Number(index.into()))];
        let name = match named.get(&index) {
            Some(InstructionInfo { op, outputs, .. }) => {
                stats.extend(outputs.first().map(|output| ("output", Stat::Text(output.tensor_type.to_string()))));
                format!("{signature}/{op}_{index}:{op}")
            }
            None => format!("{signature}/instruction_{index}:instruction"),
        };
        spans.add(name, ticks, stats);
    }
    let rest = match run.of.saturating_sub(run.ticks.len() as u32) {
        0 => format!("{signature}/executor:between ops"),
        lost => format!("{signature}/lost:{lost} ops whose counts were lost"),
    };
    spans.add(rest, run.total.saturating_sub(spans.passed), Vec::new());
    let total_ps = clock.ps(run.total);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64);
    let start_ns = now.saturating_sub(total_ps / 1000);
    let steps = vec![Span::step(signature, run.step.into(), 0, total_ps)];
    let lines = [("steps", steps), ("ops", spans.done)];
    let lines = lines.into_iter().map(|(name, spans)| Line { name: name.into(), start_ns, spans });
    let plane = Plane { name: format!("/device:{}", clock.sender), lines: lines.collect(), ..Plane::default() };
    Timeline { host: host(&clock.sender), planes: vec![plane] }
}

/// A list of consecutive spans.
struct Spans<'c> {
    clock: &'c Clock,
    /// Total number of ticks of the spans so far.
    passed: u32,
    done: Vec<Span>,
}

impl Spans<'_> {
    fn add(&mut self, name: String, ticks: u32, mut stats: Vec<(&'static str, Stat)>) {
        stats.extend([("count", Stat::Number(ticks.into())), ("clock", Stat::Text(self.clock.counts.clone()))]);
        self.done.push(Span { name, start_ps: self.clock.ps(self.passed), duration_ps: self.clock.ps(ticks), stats });
        self.passed = self.passed.saturating_add(ticks);
    }
}

/// Converts a sender's name to a valid part of a file name.
fn host(sender: &str) -> String {
    let name: String = sender.chars().map(|c| if c.is_alphanumeric() || "-_".contains(c) { c } else { '_' }).collect();
    if name.is_empty() { "device".into() } else { name }
}

/// Returns the instructions of a signature, by number.
fn names<'m>(signature: &str, model: Option<&'m Description>) -> BTreeMap<u32, &'m InstructionInfo> {
    let found = model.and_then(|model| model.signatures.iter().find(|info| info.name == signature));
    found.into_iter().flat_map(|info| info.walk()).map(|(_, instruction)| (instruction.index, instruction)).collect()
}
