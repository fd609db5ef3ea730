//! The runs to read.

use anyhow::{Result, bail};
use clap::Args;
use glob::Pattern;
use gradlet::io::FileError;
use gradlet::summary::{Kind, Run, Series};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// The runs and tags to read.
#[derive(Args)]
pub struct Input {
    /// Folder with runs, as for `tensorboard --logdir`, or one event file
    #[arg(value_name = "LOGDIR")]
    logdir: PathBuf,
    /// Only runs whose names match: `*` matches any text, `?` any character
    #[arg(long, value_name = "PATTERN")]
    run: Vec<Pattern>,
    /// Only tags that match
    #[arg(long, value_name = "PATTERN")]
    tag: Vec<Pattern>,
}

impl Input {
    /// Finds the selected runs. Returns the path of each run by its name.
    fn find(&self) -> Result<BTreeMap<String, PathBuf>> {
        if self.logdir.is_file() {
            return Ok(BTreeMap::from([(".".into(), self.logdir.clone())]));
        }
        let mut runs = Run::find(&self.logdir)?;
        if runs.is_empty() {
            bail!(
                "{}: neither this folder nor any folder below it has an event file: no file name contains \"tfevents\"",
                self.logdir.display()
            );
        }
        let names: Vec<String> = runs.keys().cloned().collect();
        runs.retain(|name, _| matches(&self.run, name));
        if runs.is_empty() {
            bail!("{}: no run matches; there are {names:?}", self.logdir.display());
        }
        Ok(runs)
    }

    /// Reads the selected runs, one after another. Calls `take` with the name, the path and the contents of each run.
    pub fn each(&self, quiet: bool, mut take: impl FnMut(&str, &Path, Run) -> Result<()>) -> Result<()> {
        let runs = self.find()?;
        let bar = bar(runs.values().map(|path| size(path)).sum::<Result<u64>>()?, quiet);
        for (name, path) in &runs {
            take(name, path, Run::read_with(path, &mut |bytes| bar.inc(bytes))?)?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Returns the series of `run` whose tags are selected, each with its kind and tag.
    pub fn series<'a>(&self, run: &'a Run) -> impl Iterator<Item = (Kind, &'a str, &'a Series)> {
        run.all().filter(|(_, tag, _)| matches(&self.tag, tag))
    }
}

fn matches(patterns: &[Pattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name))
}

/// Returns the size of a run in bytes.
fn size(path: &Path) -> Result<u64> {
    let files = if path.is_dir() { Run::files(path)? } else { vec![path.into()] };
    let size = |path: &PathBuf| Ok(path.metadata().map_err(|error| FileError::io(path, error))?.len());
    files.iter().map(size).sum()
}

/// Creates a progress bar for a number of bytes. It is shown only on a terminal.
fn bar(bytes: u64, quiet: bool) -> ProgressBar {
    let hidden = quiet || !std::io::stderr().is_terminal();
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::with_draw_target(Some(bytes), target).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Returns the plugin that shows a series. For the formats of TensorFlow 1, this is the plugin that replaced them.
pub fn plugin(kind: Kind, series: &Series) -> &str {
    match kind {
        Kind::Tensor => series.plugin(),
        Kind::Scalar => "scalars",
        Kind::Histogram => "histograms",
        Kind::Image => "images",
        Kind::Audio => "audio",
    }
}
