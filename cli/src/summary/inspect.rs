//! The command `gradlet summary inspect`.

use super::runs::{Input, plugin};
use super::values::{describe, json, show};
use crate::print;
use anyhow::{Result, bail};
use clap::Args;
use gradlet::summary::{Kind, Run, Series};
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Show the tags of each run in event files, with plugin, type, steps and last value
///
/// Damaged records are skipped and reported. The exit code is 1 if there was damage.
#[derive(Args)]
#[command(after_help = "Examples:
  gradlet summary inspect logs
  gradlet summary inspect logs --run train --tag 'epoch_*'
  gradlet summary inspect logs/events.out.tfevents.1700000000.host.1.0.v2 --json")]
pub struct Inspect {
    #[command(flatten)]
    input: Input,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let (mut text, mut runs, mut damaged) = (String::new(), Vec::new(), 0);
        self.input.each(quiet, |name, path, run| {
            damaged += usize::from(!run.damage.is_empty());
            match self.json {
                true => runs.push(self.value(name, path, &run)),
                false => {
                    runs.push(Value::Null);
                    self.text(name, &run, &mut text)?;
                }
            }
            Ok(())
        })?;
        match self.json {
            true => print(&format!("{:#}\n", json!({ "runs": runs })))?,
            false => print(&text)?,
        }
        if damaged > 0 {
            bail!("{damaged} of {} runs are damaged", runs.len());
        }
        Ok(())
    }

    fn text(&self, name: &str, run: &Run, text: &mut String) -> Result<()> {
        let mut rows = vec![["tag", "plugin", "type", "points", "steps", "last value"].map(String::from)];
        let mut points = 0;
        for (kind, tag, series) in self.input.series(run) {
            points += series.points.len() as u64;
            rows.push(row(kind, tag, series));
        }
        let (tags, points) = (counted(rows.len() as u64 - 1, "tag"), counted(points, "point"));
        writeln!(text, "{name}: {tags}, {points}")?;
        let width = |index: usize| rows.iter().map(|row| row[index].chars().count()).max().unwrap_or(0);
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(width);
        for [tag, plugin, kind, count, steps, last] in rows.iter().filter(|_| rows.len() > 1) {
            let line = format!("  {tag:a$}  {plugin:b$}  {kind:c$}  {count:>d$}  {steps:>e$}  {last}");
            writeln!(text, "{}", line.trim_end())?;
        }
        for (what, bytes) in [("graph", &run.graph), ("meta graph", &run.meta_graph)] {
            bytes.as_ref().map_or(Ok(()), |bytes| writeln!(text, "  a {what} of {}", HumanBytes(bytes.len() as u64)))?;
        }
        for (tag, bytes) in &run.run_metadata {
            writeln!(text, "  run metadata {tag:?} of {}", HumanBytes(bytes.len() as u64))?;
        }
        run.damage.iter().try_for_each(|error| writeln!(text, "  damage: {error}"))?;
        if run.skipped.places > 0 {
            writeln!(text, "  skipped: {} in {}", HumanBytes(run.skipped.bytes), counted(run.skipped.places, "place"))?;
        }
        Ok(())
    }

    fn value(&self, name: &str, path: &Path, run: &Run) -> Value {
        let tags: Vec<Value> = self.input.series(run).map(|(kind, tag, series)| tag_value(kind, tag, series)).collect();
        let metadata: Vec<_> = run.run_metadata.iter().map(|(tag, bytes)| json!({ "tag": tag, "bytes": bytes.len() })).collect();
        json!({
            "run": name,
            "path": path.display().to_string(),
            "tags": tags,
            "graph_bytes": run.graph.as_ref().map(|graph| graph.len()),
            "run_metadata": metadata,
            "skipped": { "places": run.skipped.places, "bytes": run.skipped.bytes },
            "damage": run.damage.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

/// Formats a count: `1 tag`, `60,000 points`.
fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", HumanCount(count), if count == 1 { "" } else { "s" })
}

fn row(kind: Kind, tag: &str, series: &Series) -> [String; 6] {
    let (plugin, count) = (plugin(kind, series), HumanCount(series.points.len() as u64).to_string());
    let (Some(first), Some(last)) = (series.points.first(), series.points.last()) else {
        return [tag.into(), plugin.into(), "-".into(), count, String::new(), String::new()];
    };
    let steps = if series.points.len() == 1 { first.step.to_string() } else { format!("{} to {}", first.step, last.step) };
    [tag.into(), plugin.into(), describe(last), count, steps, show(plugin, last)]
}

fn tag_value(kind: Kind, tag: &str, series: &Series) -> Value {
    let (plugin, points) = (plugin(kind, series), &series.points);
    json!({
        "tag": tag,
        "plugin": plugin,
        "description": series.metadata.summary_description,
        "type": points.last().map(describe),
        "points": points.len(),
        "first_step": points.first().map(|point| point.step),
        "last_step": points.last().map(|point| point.step),
        "last": points.last().map(|point| json(plugin, point)),
    })
}
