//! The command `gradlet ckpt verify`.

use super::source::{Checkpoint, Content};
use crate::print;
use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Check every checksum of checkpoints, and list the damaged tensors
///
/// A safetensors file has no checksums. The command only checks that its tensors fill the file. The exit code is 1 if a
/// checkpoint is damaged.
#[derive(Args)]
#[command(after_help = "Examples:
  gradlet ckpt verify training
  gradlet ckpt verify training/ckpt-6 training/ckpt-7")]
pub struct Verify {
    /// Prefixes or folders of TensorFlow checkpoints, safetensors files, artifacts, or flat checkpoints
    #[arg(value_name = "CHECKPOINT", required = true)]
    checkpoints: Vec<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let (mut text, mut all, mut damaged) = (String::new(), Vec::new(), 0);
        for path in &self.checkpoints {
            let (whole, count, damage) = match Checkpoint::open_damaged(path, None) {
                Ok(checkpoint) => {
                    let (whole, damage) = verify(&checkpoint, quiet);
                    (whole, tensors(&checkpoint), damage)
                }
                Err(error) => (0, 0, vec![format!("{error:#}")]),
            };
            damaged += usize::from(!damage.is_empty());
            let state =
                if damage.is_empty() { format!("whole, {count} tensors") } else { format!("damaged, {whole} of {count} tensors whole") };
            text += &format!("{}: {state}\n", path.display());
            damage.iter().for_each(|line| text += &format!("  {line}\n"));
            let path = path.display().to_string();
            all.push(json!({ "path": path, "whole": damage.is_empty(), "tensors": count, "whole_tensors": whole, "damage": damage }));
        }
        match self.json {
            true => print(&format!("{:#}\n", json!({ "checkpoints": all })))?,
            false => print(&text)?,
        }
        if damaged > 0 {
            bail!("{damaged} of {} checkpoints are damaged", self.checkpoints.len());
        }
        Ok(())
    }
}

/// Returns the number of tensors, the object graph included.
fn tensors(checkpoint: &Checkpoint) -> usize {
    match &checkpoint.content {
        Content::Bundle { reader, .. } => reader.entries().len(),
        Content::Flat { entries, .. } => *entries,
        _ => checkpoint.items.len(),
    }
}

/// Returns the number of intact tensors, and an error for each damaged part.
fn verify(checkpoint: &Checkpoint, quiet: bool) -> (usize, Vec<String>) {
    if let Content::Flat { damage, .. } = &checkpoint.content {
        return (checkpoint.items.len(), damage.clone());
    }
    // The other kinds were checked when they were opened.
    let Content::Bundle { reader, .. } = &checkpoint.content else { return (checkpoint.items.len(), Vec::new()) };
    let mut damage: Vec<String> = reader.damage().iter().map(ToString::to_string).collect();
    let bar = bar(reader.entries().map(|(_, entry)| entry.bytes()).sum(), quiet);
    let mut whole = 0;
    for (key, entry) in reader.entries() {
        match reader.verify(key) {
            Ok(()) => whole += 1,
            Err(error) => damage.push(error.to_string()),
        }
        bar.inc(entry.bytes());
    }
    bar.finish_and_clear();
    (whole, damage)
}

/// Creates a progress bar for a number of bytes. It is shown only on a terminal.
fn bar(bytes: u64, quiet: bool) -> ProgressBar {
    let hidden = quiet || !std::io::stderr().is_terminal();
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::with_draw_target(Some(bytes), target).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
