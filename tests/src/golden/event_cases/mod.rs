//! Event files that TensorFlow wrote, intact and damaged, with the data that TensorBoard reads from them.

mod damage;
mod listing;
mod live;
mod metadata;
mod plugins;
mod tensors;
mod written;

use crate::golden::checks::{Checks, json};
use anyhow::{Context, Result, bail};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// Function that runs the cases of a file. Its arguments are the folder, the file's name without `.json`, and the file's contents.
type Run = fn(&Path, &str, &Json, &mut Checks) -> Result<()>;

/// Function that returns true if a file has a form.
type Is = fn(&Json) -> bool;

/// Forms of files. The function recognizes a form by a field that no other form has.
const FORMS: [(Is, Run); 4] = [
    (|json| json.get("event_accumulator").is_some(), listing::listing),
    (|json| json.get("record_offsets").is_some(), damage::damage),
    (|json| json[0].get("steps_seen").is_some(), live::live),
    (|json| json.get("function_graphs").is_some(), metadata::metadata),
];

/// True if a folder has event cases: one of its files has the data of an `EventAccumulator`.
pub fn are_in(folder: &Path) -> bool {
    files(folder).is_ok_and(|names| names.iter().any(|name| json(folder, name).is_ok_and(|json| FORMS[0].0(&json))))
}

/// Runs the cases of all files in a folder. A file of an unknown form is a failure.
pub fn run(folder: &Path, checks: &mut Checks) -> Result<()> {
    for name in files(folder)? {
        let json = json(folder, &name)?;
        match FORMS.iter().find(|(is, _)| is(&json)) {
            Some((_, run)) => {
                run(folder, name.trim_end_matches(".json"), &json, checks).with_context(|| folder.join(&name).display().to_string())?
            }
            None => checks.check(&name, || bail!("the form of this file is unknown")),
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.retain(|name| name.ends_with(".json") && name != "MANIFEST.json");
    names.sort();
    Ok(names)
}

/// Returns the items of a list of numbers.
fn steps(json: &Json) -> Result<Vec<i64>> {
    json.as_array().context("no list of steps")?.iter().map(|step| step.as_i64().context("a step is not an integer")).collect()
}
