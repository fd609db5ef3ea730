//! `cargo xtask test`: runs the steps, in parallel chains, until one fails.

use crate::log::Log;
use crate::steps::{BINARIES, BUILD, CHAINS, FIRST, Options, Step};
use anyhow::{Result, bail};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;
use xtask::setup;
use xtask::shell::{self, cargo};

/// Word on the command line that selects every step, with longer runs of the fuzz targets.
const ALL: &str = "all";

/// Runs the steps whose names contain one of `wanted`. Runs every step if `wanted` is empty or contains the word `all`.
pub fn run(wanted: &[String]) -> Result<()> {
    let all = wanted.iter().any(|word| word == ALL);
    let is_wanted =
        |step: &&Step| wanted.is_empty() || all || wanted.iter().any(|part| step.name.to_lowercase().contains(&part.to_lowercase()));
    let chosen = |steps: &'static [Step]| steps.iter().filter(is_wanted).collect::<Vec<_>>();
    let (first, chains) = (chosen(&FIRST), CHAINS.map(chosen));
    if first.is_empty() && chains.iter().all(Vec::is_empty) {
        let names = FIRST.iter().chain(CHAINS.into_iter().flatten()).map(|step| step.name);
        bail!("no step has {wanted:?} in its name: the steps are {:?}", names.collect::<Vec<_>>());
    }
    setup::ensure()?;
    let options = Options { all };
    let (start, progress) = (Instant::now(), Mutex::new(Progress::default()));
    let chosen = first.iter().chain(chains.iter().flatten());
    if chosen.clone().any(|step| step.needs_tools) && !chosen.clone().any(|step| step.name == BUILD) {
        shell::run(cargo().args(BINARIES))?;
    }
    chain(&first, &options, true, &progress);
    let chains: Vec<_> = chains.into_iter().filter(|steps| !steps.is_empty()).collect();
    let live = chains.len() == 1;
    thread::scope(|threads| {
        for steps in &chains {
            threads.spawn(|| chain(steps, &options, live, &progress));
        }
    });
    let progress = progress.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let Counts { tests, golden, skipped } = progress.counts;
    println!("\n{tests} tests and {golden} golden cases passed, {skipped} golden cases are skipped (tests/skips.txt has the reasons)");
    let failed = usize::from(progress.failed.is_some());
    println!("{} steps passed, {failed} failed, in {:.0} s", progress.passed, start.elapsed().as_secs_f64());
    progress.failed.map_or(Ok(()), Err)
}

/// Shared state of the chains.
#[derive(Default)]
struct Progress {
    passed: usize,
    counts: Counts,
    failed: Option<anyhow::Error>,
}

/// Runs steps one after another. No step starts after a failure in any chain.
fn chain(steps: &[&Step], options: &Options, live: bool, progress: &Mutex<Progress>) {
    // The lock is also held while a step's output is printed, so that outputs never mix.
    let lock = || progress.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for Step { name, run, .. } in steps {
        {
            if lock().failed.is_some() {
                return;
            }
            println!("\n== {name}");
        }
        let (start, mut log) = (Instant::now(), Log::new(live));
        let result = run(options, &mut log);
        let mut progress = lock();
        let seconds = start.elapsed().as_secs_f64();
        if !live {
            println!("\n== {name}: its output");
        }
        log.show();
        match result {
            Ok(()) => {
                println!("== {name}: passed in {seconds:.1} s");
                progress.passed += 1;
                progress.counts.add(&log.text());
            }
            Err(error) => {
                println!("== {name}: FAILED after {seconds:.1} s: {error:#}");
                let first = progress.failed.take();
                progress.failed = first.or(Some(error.context(format!("step \"{name}\""))));
            }
        }
    }
}

/// Counts of passed cases.
#[derive(Default)]
struct Counts {
    tests: usize,
    golden: usize,
    skipped: usize,
}

impl Counts {
    /// Adds the counts in a step's output: `test result: ok. N passed; …` of a test program, and `N passed, M failed, K
    /// skipped` of the golden suite.
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            let numbers = || line.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<usize>().ok());
            if line.starts_with("test result: ok.") {
                self.tests += numbers().next().unwrap_or(0);
            } else if line.ends_with(" skipped") && line.contains(" passed, ") {
                self.golden += numbers().next().unwrap_or(0);
                self.skipped += numbers().next_back().unwrap_or(0);
            }
        }
    }
}
