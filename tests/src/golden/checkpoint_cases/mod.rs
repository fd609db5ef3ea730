//! Checkpoints that TensorFlow wrote, intact and damaged, with the values or errors that TensorFlow returns when it reads them.

mod damage;
mod graph;
mod keras;
mod listing;
mod managed;
mod modules;
mod restored;
mod transcripts;

use crate::golden::checks::Checks;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// Function that runs the cases of a file. Its arguments are the folder, and the file's name without the ending in [`FORMS`].
type Run = fn(&Path, &str, &mut Checks) -> Result<()>;

/// Forms of files, by the endings of their names. The first match counts.
const FORMS: [(&str, Run); 5] = [
    ("_expected.json", damage::damage),
    ("_transcript.json", transcripts::transcript),
    (".io.safetensors", modules::in_and_out),
    (".next_step.safetensors", keras::next_step),
    (".json", listing::listing),
];

/// Endings of files that belong to the listing `.json` of the same name.
const COMPANIONS: [&str; 2] = [".graph.pbtxt", ".safetensors"];

/// A field name that only a listing has.
const LISTING: &str = "\"keys_in_file_order\"";

/// True if a folder, or one of its subfolders, has a listing.
pub fn are_in(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let is_listing = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.contains(LISTING));
    entries.flatten().map(|entry| entry.path()).any(|path| match path.extension() {
        Some(ending) => ending == "json" && is_listing(&path),
        None => path.is_dir() && are_in(&path),
    })
}

/// Runs the cases of all files in a folder, and in its subfolders that contain a listing ([`are_in`]). A file of an unknown form counts as
/// a failed case.
pub fn run(folder: &Path, checks: &mut Checks) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().into_string().ok().context("a file name is not valid UTF-8")?);
        } else if are_in(&entry.path()) {
            run(&entry.path(), checks)?;
        }
    }
    names.sort();
    for name in names.iter().filter(|name| !["MANIFEST.json", "README.md"].contains(&name.as_str())) {
        let companion = COMPANIONS.iter().find_map(|ending| name.strip_suffix(ending));
        if companion.is_some_and(|stem| names.contains(&format!("{stem}.json"))) {
            continue;
        }
        match FORMS.iter().find_map(|(ending, run)| Some((name.strip_suffix(ending)?, run))) {
            Some((stem, run)) => run(folder, stem, checks).with_context(|| folder.join(name).display().to_string())?,
            None => checks.check(name, || bail!("the form of this file is unknown")),
        }
    }
    Ok(())
}
