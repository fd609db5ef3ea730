//! Golden vectors, on every runtime.

use crate::setup::{self, Toolchain};
use crate::{firmware, models};
use anyhow::{Context, Result, ensure};
use gradlet_tests::golden;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// `cargo xtask golden`: the cases in `folders`, or the project's own.
pub fn run(folders: &[PathBuf]) -> Result<()> {
    let toolchain = setup::ensure()?;
    let own = [golden::own_folder()];
    let folders = if folders.is_empty() { &own } else { folders };
    let counts = golden::run(folders, Some(&mut |cases| cortex_m(&toolchain, cases)))?;
    ensure!(counts.failed == 0, "{} golden cases failed", counts.failed);
    Ok(())
}

/// Hands the cases to the generic firmware, and gives its answers.
fn cortex_m(toolchain: &Toolchain, cases: &[u8]) -> Result<Vec<u8>> {
    let folder = models::none()?;
    let elf = firmware::build(toolchain, "runner", None)?;
    std::fs::write(folder.join("cases.bin"), cases)?;
    firmware::run(&elf, &folder, &["cases.bin", "answers.bin"], LIMIT)?.ok()?;
    std::fs::read(folder.join("answers.bin")).context("the firmware wrote no answers")
}
