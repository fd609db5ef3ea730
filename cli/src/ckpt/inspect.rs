//! The command `gradlet ckpt inspect`.

use super::numbers::{Statistics, short, statistics};
use super::source::{Checkpoint, Content, Item};
use super::tree;
use crate::print;
use anyhow::{Result, bail};
use clap::Args;
use gradlet::checkpoint::bundle::{dtype_name, element_bytes};
use gradlet::io::proto::DataType;
use indicatif::HumanBytes;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Show the names, types, shapes, sizes and statistics of the tensors in a checkpoint
///
/// NaNs are counted and excluded from the other statistics.
#[derive(Args)]
#[command(after_help = "Examples:
  gradlet ckpt inspect training
  gradlet ckpt inspect --tree training/ckpt-7
  gradlet ckpt inspect --json weights.safetensors")]
pub struct Inspect {
    /// A TensorFlow checkpoint's prefix or folder, a safetensors file, an artifact, or a flat checkpoint
    checkpoint: PathBuf,
    /// Artifact with the variable names of a flat checkpoint
    #[arg(long, value_name = "FILE")]
    artifact: Option<PathBuf>,
    /// Show TensorFlow's objects as a tree instead of the tensors
    #[arg(long)]
    tree: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Information about the values of a tensor.
enum Values {
    Numbers(Option<Statistics>),
    /// The first strings of a string tensor.
    Strings(Vec<String>),
    Damaged(String),
}

impl Inspect {
    pub fn run(&self, _quiet: bool) -> Result<()> {
        let checkpoint = Checkpoint::open(&self.checkpoint, self.artifact.as_deref())?;
        if self.tree {
            return match &checkpoint.content {
                Content::Bundle { graph: Some(graph), .. } => print(&tree::text(graph)),
                _ => bail!("{}: has no objects for --tree: it is of the kind {:?}", checkpoint.path.display(), checkpoint.kind()),
            };
        }
        let values: Vec<Values> = (0..checkpoint.items.len()).map(|index| values(&checkpoint, index)).collect();
        match self.json {
            true => print(&format!("{:#}\n", json(&checkpoint, &values)))?,
            false => print(&text(&checkpoint, &values))?,
        }
        let damaged = values.iter().filter(|values| matches!(values, Values::Damaged(_))).count();
        if damaged > 0 {
            bail!("{damaged} of {} tensors are damaged: run `gradlet ckpt verify` for details", values.len());
        }
        Ok(())
    }
}

fn values(checkpoint: &Checkpoint, index: usize) -> Values {
    let item = &checkpoint.items[index];
    let read = || match item.dtype {
        DataType::DtString => {
            let strings = checkpoint.strings(index)?;
            Ok(Values::Strings(strings.values().iter().take(3).map(|string| String::from_utf8_lossy(string).into_owned()).collect()))
        }
        dtype if element_bytes(dtype).is_none() => Ok(Values::Numbers(None)),
        dtype => Ok(Values::Numbers(statistics(dtype, &checkpoint.bytes(index)?))),
    };
    read().unwrap_or_else(|error: anyhow::Error| Values::Damaged(error.to_string()))
}

fn text(checkpoint: &Checkpoint, values: &[Values]) -> String {
    let bytes = checkpoint.items.iter().fold(0u64, |all, item| all.saturating_add(item.bytes));
    let count = checkpoint.items.len();
    let head = format!("{}: {}, {count} tensors, {}\n", checkpoint.path.display(), checkpoint.kind(), HumanBytes(bytes));
    let mut rows = vec![["", "type", "shape", "bytes", "min", "max", "mean"].map(String::from)];
    rows.extend(checkpoint.items.iter().zip(values).map(|(item, values)| row(item, values)));
    let widths: [usize; 7] = std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0..3 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    head + &rows.iter().map(line).collect::<String>()
}

/// Shortens a text for a cell of a table.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

fn row(item: &Item, values: &Values) -> [String; 7] {
    let [min, max, mean] = match values {
        Values::Numbers(Some(Statistics { min, max, mean, nan: 0 })) => [short(*min), short(*max), short(*mean)],
        Values::Numbers(Some(Statistics { min, max, mean, nan })) => [short(*min), short(*max), format!("{}, {nan} NaN", short(*mean))],
        Values::Numbers(None) => Default::default(),
        Values::Strings(first) => [shortened(&format!("{:?}", first.first().map_or("", |first| first))), String::new(), String::new()],
        Values::Damaged(_) => ["damaged".into(), String::new(), String::new()],
    };
    [shortened(&item.name), dtype_name(item.dtype), format!("{:?}", item.dims), item.bytes.to_string(), min, max, mean]
}

fn json(checkpoint: &Checkpoint, values: &[Values]) -> Value {
    let tensors = checkpoint.items.iter().zip(values).map(|(item, values)| {
        let mut tensor = json!({
            "key": item.key, "name": item.name, "names": item.aliases, "dtype": dtype_name(item.dtype), "shape": item.dims,
            "bytes": item.bytes,
        });
        match values {
            Values::Numbers(None) => (),
            Values::Numbers(Some(Statistics { min, max, mean, nan })) => {
                tensor["statistics"] = json!({ "min": min, "max": max, "mean": mean, "nan": nan });
            }
            Values::Strings(first) => tensor["first"] = json!(first),
            Values::Damaged(text) => tensor["damage"] = json!(text),
        }
        tensor
    });
    let tensors: Vec<Value> = tensors.collect();
    json!({ "path": checkpoint.path.display().to_string(), "kind": checkpoint.kind(), "tensors": tensors })
}
