//! Event files that TensorFlow wrote, whole and damaged, and what TensorBoard reads in them.

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

/// Runs the cases of a file: in which folder, its name without `.json`, and what is in it.
type Run = fn(&Path, &str, &Json, &mut Checks) -> Result<()>;

/// Whether a file is of a form.
type Is = fn(&Json) -> bool;

/// The forms of files, by what only they have.
const FORMS: [(Is, Run); 4] = [
    (|json| json.get("event_accumulator").is_some(), listing::listing),
    (|json| json.get("record_offsets").is_some(), damage::damage),
    (|json| json[0].get("steps_seen").is_some(), live::live),
    (|json| json.get("function_graphs").is_some(), metadata::metadata),
];

/// Whether a folder is of this form: a file says what an `EventAccumulator` reads.
pub fn are_in(folder: &Path) -> bool {
    files(folder).is_ok_and(|names| names.iter().any(|name| json(folder, name).is_ok_and(|json| FORMS[0].0(&json))))
}

/// Runs the cases of all files in a folder; one of a form that is not known is a failure.
pub fn run(folder: &Path, checks: &mut Checks) -> Result<()> {
    for name in files(folder)? {
        let json = json(folder, &name)?;
        match FORMS.iter().find(|(is, _)| is(&json)) {
            Some((_, run)) => {
                run(folder, name.trim_end_matches(".json"), &json, checks).with_context(|| folder.join(&name).display().to_string())?
            }
            None => checks.check(&name, || bail!("no form is known by this file")),
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

/// The items of a list of numbers.
fn steps(json: &Json) -> Result<Vec<i64>> {
    json.as_array().context("no list of steps")?.iter().map(|step| step.as_i64().context("a step that is no number")).collect()
}
