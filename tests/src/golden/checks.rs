//! Cases of files and data. They run only once, not on every runtime.

use crate::golden::Counts;
use crate::golden::{checkpoint_cases, data_cases, device_cases, event_cases, example_cases, image_cases, tfrecord_cases};
use anyhow::{Context, Result, anyhow};
use serde_json::Value as Json;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Function that runs the cases in a file of a folder.
type Run = fn(&Path, &mut Checks) -> Result<()>;

/// Forms of folders: the file that identifies a form, and the function that runs its cases. A folder can have several forms.
const FORMS: [(&str, Run); 11] = [
    ("corrupt/expected.json", tfrecord_cases::damage),
    ("crc32c.json", tfrecord_cases::checksums),
    ("examples/examples.json", example_cases::examples),
    ("examples/parse_cases.json", example_cases::parse_cases),
    ("examples/sequence_cases.json", example_cases::sequence_cases),
    ("images.json", image_cases::images),
    ("other.json", data_cases::others),
    ("random.json", data_cases::pipelines),
    ("records.json", tfrecord_cases::records),
    ("scenarios.json", device_cases::scenarios),
    ("serialize_tensor.json", example_cases::tensors),
];

/// Runs cases, counts the results, and prints the failures.
#[derive(Debug, Default)]
pub struct Checks {
    /// Counts so far.
    pub counts: Counts,
}

impl Checks {
    /// Runs a case. A panic counts as a failure.
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

/// Files that have no form of their own: a manifest, and `cases.json`, which belongs to `other.json` and `random.json`.
const COMPANIONS: [&str; 2] = ["MANIFEST.json", "cases.json"];

/// Runs all cases of a folder that have one of these forms. Returns `None` if the folder has none of them. In a folder that has one, a JSON
/// file of an unknown form is a failure.
///
/// Returns an error if a file cannot be read. Wrong results are only counted.
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
            checks.check(&file, || anyhow::bail!("the form of this file is unknown"));
        }
    }
    Ok(known.then_some(checks.counts))
}

/// Returns the JSON files below a folder, as paths relative to `root`.
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

/// Reads a JSON file of a folder.
pub fn json(folder: &Path, file: &str) -> Result<Json> {
    let path = folder.join(file);
    let read = || Ok::<_, anyhow::Error>(serde_json::from_slice(&fs::read(&path)?)?);
    read().with_context(|| path.display().to_string())
}

/// Decodes a hexadecimal text such as `00ff`.
pub fn hex(text: &str) -> Result<Vec<u8>> {
    anyhow::ensure!(text.len().is_multiple_of(2) && text.is_ascii(), "{text:?} is not in hex");
    (0..text.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?)).collect()
}

/// Decodes the field `hex` of an object.
pub fn hex_field(object: &Json) -> Result<Vec<u8>> {
    hex(object["hex"].as_str().with_context(|| format!("no \"hex\" in {object}"))?)
}
