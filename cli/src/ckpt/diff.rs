//! The command `gradlet ckpt diff`.

use super::names::{Map, matched, parse_map};
use super::numbers::{each, short};
use super::source::{Checkpoint, Item};
use crate::print;
use anyhow::{Result, bail};
use clap::Args;
use gradlet::io::proto::DataType;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Show the tensors in which two checkpoints differ, and the size of the differences
///
/// The checkpoints may be of different kinds. Tensors are matched by name, then by path (`dense/kernel` matches
/// `sequential/dense/kernel`), then by type and shape if only one tensor has them. The exit code is 1 if the
/// checkpoints differ.
#[derive(Args)]
#[command(after_help = "Examples:
  gradlet ckpt diff training/ckpt-6 training/ckpt-7
  gradlet ckpt diff training weights.safetensors --tolerance 1e-6")]
pub struct Diff {
    /// A TensorFlow checkpoint's prefix or folder, a safetensors file, an artifact, or a flat checkpoint
    a: PathBuf,
    /// Another checkpoint
    b: PathBuf,
    /// Artifact with the variable names of flat checkpoints
    #[arg(long, value_name = "FILE")]
    artifact: Option<PathBuf>,
    /// Treat numbers as equal if they differ by no more than this
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    tolerance: f64,
    /// Name of a tensor of A, and of the tensor of B to compare it with
    #[arg(long, value_name = "A=B", value_parser = parse_map)]
    map: Vec<Map>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Difference between two tensors.
struct Difference {
    /// Number of elements that differ; `of` is the number of all elements.
    count: u64,
    of: u64,
    /// Largest difference, the numbers in A and in B, and their index in each dimension. `None` if the elements are not
    /// real numbers.
    largest: Option<(f64, f64, f64, Vec<u64>)>,
}

impl Diff {
    pub fn run(&self) -> Result<()> {
        let artifact = self.artifact.as_deref();
        let (a, b) = (Checkpoint::open(&self.a, artifact)?, Checkpoint::open(&self.b, artifact)?);
        let sources = matched(&a.items, &b.items, &self.map)?;
        let (mut text, mut tensors, mut same, mut differ) = (String::new(), Vec::new(), 0, 0);
        for (at, source) in sources.iter().enumerate() {
            let Some((source, because)) = source else { continue };
            let name = &b.items[at].name;
            match self.compare(&a, *source, &b, at)? {
                None => same += 1,
                Some(difference) => {
                    differ += 1;
                    text += &format!("{name}{}: {}\n", because.words(), difference.words());
                    tensors.push(difference.json(&a.items[*source].name, name));
                }
            }
        }
        let used: Vec<usize> = sources.iter().flatten().map(|(source, _)| *source).collect();
        let mut only_a: Vec<&Item> = a.items.iter().enumerate().filter(|(at, _)| !used.contains(at)).map(|(_, item)| item).collect();
        let mut only_b: Vec<&Item> = b.items.iter().zip(&sources).filter(|(_, source)| source.is_none()).map(|(item, _)| item).collect();
        only_a.retain(|item| {
            let Some(at) = only_b.iter().position(|other| other.name == item.name) else { return true };
            let (one, other) = (item.describe(), only_b.remove(at).describe());
            text += &format!("{}: {one} and {other}\n", item.name);
            tensors.push(json!({ "a": item.name, "b": item.name, "types": [one, other] }));
            differ += 1;
            false
        });
        for (items, path) in [(&only_a, &self.a), (&only_b, &self.b)] {
            items.iter().for_each(|item| text += &format!("{}: {}, only in {}\n", item.name, item.describe(), path.display()));
        }
        let names = |items: &[&Item]| items.iter().map(|item| item.name.clone()).collect::<Vec<_>>();
        let others = only_a.len() + only_b.len();
        text += &format!("{same} tensors are the same, {differ} differ, {others} are only in one\n");
        match self.json {
            true => print(&format!(
                "{:#}\n",
                json!({ "same": same, "different": tensors, "only_in_a": names(&only_a), "only_in_b": names(&only_b) })
            ))?,
            false => print(&text)?,
        }
        if differ + others > 0 {
            bail!("{} and {} differ", self.a.display(), self.b.display());
        }
        Ok(())
    }

    /// Compares two tensors of the same type and shape. Returns `None` if they are equal.
    fn compare(&self, a: &Checkpoint, at: usize, b: &Checkpoint, other: usize) -> Result<Option<Difference>> {
        let item = &b.items[other];
        let of = item.dims.iter().fold(1u64, |of, dim| of.saturating_mul(*dim));
        if item.dtype == DataType::DtString {
            let (a, b) = (a.strings(at)?, b.strings(other)?);
            let count = a.values().iter().zip(b.values()).filter(|(a, b)| a != b).count() as u64;
            return Ok((count > 0).then_some(Difference { count, of, largest: None }));
        }
        let (a, b) = (a.bytes(at)?, b.bytes(other)?);
        if a == b {
            return Ok(None);
        }
        let mut numbers = Vec::new();
        if !each(item.dtype, &a, |value| numbers.push(value)) {
            let size = (a.len() as u64 / u64::max(of, 1)).max(1) as usize;
            let count = a.chunks(size).zip(b.chunks(size)).filter(|(a, b)| a != b).count() as u64;
            return Ok(Some(Difference { count, of, largest: None }));
        }
        let mut largest: Option<(f64, f64, f64, usize)> = None;
        let (mut index, mut count) = (0, 0);
        each(item.dtype, &b, |b| {
            let a = numbers[index];
            // Two NaNs are equal here. The difference between a NaN and a number is infinite.
            let distance = if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() };
            let distance = if distance.is_nan() { f64::INFINITY } else { distance };
            if distance > self.tolerance {
                count += 1;
                if largest.is_none_or(|(most, ..)| distance > most) {
                    largest = Some((distance, a, b, index));
                }
            }
            index += 1;
        });
        let largest = largest.map(|(distance, a, b, index)| (distance, a, b, place(index as u64, &item.dims)));
        Ok((count > 0).then_some(Difference { count, of, largest }))
    }
}

/// Converts the index of an element in row-major order to its index in each dimension.
fn place(mut index: u64, dims: &[u64]) -> Vec<u64> {
    let mut place: Vec<u64> = Vec::new();
    for dim in dims.iter().rev() {
        place.insert(0, index % dim);
        index /= dim;
    }
    place
}

impl Difference {
    fn words(&self) -> String {
        let Difference { count, of, largest } = self;
        match largest {
            None => format!("{count} of {of} elements differ"),
            Some((distance, a, b, place)) => {
                format!("{count} of {of} elements differ, by {} at most: {} and {} at {place:?}", short(*distance), short(*a), short(*b))
            }
        }
    }

    fn json(&self, a: &str, b: &str) -> Value {
        let mut json = json!({ "a": a, "b": b, "elements": self.of, "different": self.count });
        if let Some((distance, a, b, place)) = &self.largest {
            json["largest"] = json!({ "difference": distance, "a": a, "b": b, "at": place });
        }
        json
    }
}
