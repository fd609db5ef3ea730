//! Cases that are right or wrong once, not on every runtime: those of files and data.

use crate::golden::Counts;
use crate::golden::{checkpoint_cases, data_cases, event_cases, example_cases, image_cases, tfrecord_cases};
use anyhow::{Context, Result, anyhow};
use serde_json::Value as Json;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Runs the cases that a file of a folder lists.
type Run = fn(&Path, &mut Checks) -> Result<()>;

/// The forms of folders: the file by which each is known, and what runs it. A folder can have several.
const FORMS: [(&str, Run); 10] = [
    ("corrupt/expected.json", tfrecord_cases::damage),
    ("crc32c.json", tfrecord_cases::checksums),
    ("examples/examples.json", example_cases::examples),
    ("examples/parse_cases.json", example_cases::parse_cases),
    ("examples/sequence_cases.json", example_cases::sequence_cases),
    ("images.json", image_cases::images),
    ("other.json", data_cases::others),
    ("random.json", data_cases::pipelines),
    ("records.json", tfrecord_cases::records),
    ("serialize_tensor.json", example_cases::tensors),
];

/// Counts what was right and wrong, and prints what was wrong.
#[derive(Debug, Default)]
pub struct Checks {
    /// What was counted; nothing is skipped.
    pub counts: Counts,
}

impl Checks {
    /// Runs a case. A panic is an error.
    pub fn check(&mut self, name: &str, case: impl FnOnce() -> Result<()>) {
        match catch_unwind(AssertUnwindSafe(case)).unwrap_or_else(|_| Err(anyhow!("it panicked"))) {
            Ok(()) => self.counts.passed += 1,
            Err(error) => {
                self.counts.failed += 1;
                println!("{name}: {error:#}");
            }
        }
    }
}

/// Files that belong to others: `cases.json` to `other.json` and `random.json`.
const COMPANIONS: [&str; 2] = ["MANIFEST.json", "cases.json"];

/// Runs all cases of a folder that have one of these forms. Gives `None` if it has none of them. In a folder that has one, a JSON
/// file of another form is a failure.
///
/// Fails where a file cannot be read; wrong results are counted instead.
pub fn run(folder: &Path) -> Result<Option<Counts>> {
    let mut checks = Checks::default();
    if checkpoint_cases::are_in(folder) {
        checkpoint_cases::run(folder, &mut checks)?;
        return Ok(Some(checks.counts));
    }
    if event_cases::are_in(folder) {
        event_cases::run(folder, &mut checks)?;
        return Ok(Some(checks.counts));
    }
    let forms = FORMS.iter().filter(|(file, _)| folder.join(file).exists());
    let mut known = false;
    for (file, run) in forms {
        run(folder, &mut checks).with_context(|| folder.join(file).display().to_string())?;
        known = true;
    }
    for file in if known { json_files(folder, folder)? } else { Vec::new() } {
        let claimed = FORMS.iter().any(|(known, _)| *known == file) || COMPANIONS.contains(&file.as_str());
        if !claimed {
            checks.check(&file, || anyhow::bail!("no form is known by this file"));
        }
    }
    Ok(known.then_some(checks.counts))
}

/// The JSON files below a folder, as paths in `root`.
fn json_files(root: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(json_files(root, &path)?);
        } else if path.extension().is_some_and(|ending| ending == "json") {
            let inside: Vec<_> = path.strip_prefix(root)?.iter().map(|part| part.to_string_lossy()).collect();
            found.push(inside.join("/"));
        }
    }
    Ok(found)
}

/// A JSON file of a folder.
pub fn json(folder: &Path, file: &str) -> Result<Json> {
    let path = folder.join(file);
    let read = || Ok::<_, anyhow::Error>(serde_json::from_slice(&fs::read(&path)?)?);
    read().with_context(|| path.display().to_string())
}

/// The bytes that a text like `00ff` stands for.
pub fn hex(text: &str) -> Result<Vec<u8>> {
    anyhow::ensure!(text.len().is_multiple_of(2) && text.is_ascii(), "{text:?} is not in hex");
    (0..text.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?)).collect()
}

/// The bytes of a field `hex`.
pub fn hex_field(object: &Json) -> Result<Vec<u8>> {
    hex(object["hex"].as_str().with_context(|| format!("no \"hex\" in {object}"))?)
}
