//! The tasks `cargo xtask golden` and `cargo xtask coverage`, which run golden vectors on every runtime, and `cargo xtask roofline`.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use gradlet_tests::golden::coverage::Coverage;
use gradlet_tests::golden::runtimes::{self, CORTEX_M};
use gradlet_tests::golden::skips::{self, Skips};
use gradlet_tests::{golden, roofline};
use gradlet_tools::firmware;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use xtask::boards::{self, M4F, Target};
use xtask::cli::{Suite, SuiteTasks};
use xtask::setup::{self, Toolchain};
use xtask::shell;

fn main() -> ExitCode {
    let result = match SuiteTasks::parse().task {
        Suite::Golden { runtimes, target, folders } => run(&runtimes, &target, &folders),
        Suite::Coverage => table().and_then(|table| write(TABLE, table)),
        Suite::Roofline => roofline::table().map_err(anyhow::Error::from).and_then(|table| write(roofline::TABLE, table)),
        Suite::CheckGolden => check(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

const LIMIT: Duration = Duration::from_secs(900);
/// Path of the committed table, which lists the element types and runtimes on which each op is tested.
const TABLE: &str = "COVERAGE.md";

/// Runs `cargo xtask golden`: the cases in `folders` on the runtimes `names`. Without folders, runs the project's own cases. Without names,
/// runs them on all runtimes.
fn run(names: &[String], target: &str, folders: &[PathBuf]) -> Result<()> {
    let runtimes = runtimes::select(names)?;
    let target = firmware::find(target)?;
    let toolchain = if runtimes.contains(&CORTEX_M) { Some(setup::ensure_target(target)?.map_err(anyhow::Error::msg)?) } else { None };
    let mut machine = toolchain.map(|toolchain| move |cases: &[u8]| cortex_m(&toolchain, target, cases));
    let counts = golden::run(&runtimes, folders, machine.as_mut().map(|machine| machine as golden::Machine<'_>))?;
    ensure!(counts.failed == 0, "{} golden cases failed", counts.failed);
    Ok(())
}

/// Replaces a committed table.
fn write(path: &str, table: String) -> Result<()> {
    let path = shell::root().join(path);
    std::fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// Runs the project's own cases. Fails if a case fails, if a line of the list of skips skips no case, or if the committed table is out of
/// date.
fn check() -> Result<()> {
    let committed = std::fs::read_to_string(shell::root().join(TABLE)).unwrap_or_default();
    ensure!(table()? == committed, "{TABLE} is out of date: run `cargo xtask coverage`, and look at what changed");
    Ok(())
}

fn table() -> Result<String> {
    let toolchain = setup::ensure()?;
    let mut skips = Skips::parse(skips::COMMITTED)?;
    let mut coverage = Coverage::default();
    let machine = &mut |cases: &[u8]| cortex_m(&toolchain, &M4F, cases);
    let counts = golden::run_with(&[], &golden::case_folders(), Some(machine), &mut skips, &mut coverage)?;
    ensure!(counts.failed == 0, "{} golden cases failed", counts.failed);
    ensure!(skips.unused().is_empty(), "these lines of skips.txt skip no case: {:?}", skips.unused());
    Ok(coverage.table())
}

/// Runs a file of cases on the generic firmware, and returns its file of answers.
fn cortex_m(toolchain: &Toolchain, target: &'static Target, cases: &[u8]) -> Result<Vec<u8>> {
    let folder = boards::no_model()?;
    let firmware = firmware::build_for(toolchain, target, "runner", None)?;
    std::fs::write(folder.join("cases.bin"), cases)?;
    firmware::run(&firmware, &folder, &["cases.bin", "answers.bin"], LIMIT)?.ok()?;
    std::fs::read(folder.join("answers.bin")).context("the firmware wrote no answers")
}
