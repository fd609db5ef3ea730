//! Damaged checkpoints, with TensorFlow's read results or errors.

use super::listing::GRAPH;
use crate::golden::checks::{Checks, json};
use crate::golden::parsed_json::{self, float};
use anyhow::{Context, Result, bail, ensure};
use gradlet::checkpoint::bundle::{BundleReader, dtype_name};
use gradlet::io::{FileError, FileResult};
use serde_json::{Value as Json, json};
use std::path::Path;

/// Runs `STEM_expected.json`: the expected result of each way to read each checkpoint in the folder `STEM`.
pub fn damage(folder: &Path, stem: &str, checks: &mut Checks) -> Result<()> {
    for (name, ways) in json(folder, &format!("{stem}_expected.json"))?.as_object().context("expected a JSON object")? {
        let prefix = folder.join(stem).join(name);
        for (way, wanted) in ways.as_object().context("expected a JSON object")? {
            checks.check(&format!("{stem}/{name}, {way}"), || match way.as_str() {
                "list_variables" => judge(BundleReader::open(&prefix), &prefix, wanted, variables),
                "load_checkpoint" => judge(opened(&prefix, |key| key != GRAPH), &prefix, wanted, values),
                // Restored values are checked elsewhere. Here, all tensors that a restore needs must be intact.
                "Checkpoint.restore" => judge(opened(&prefix, |_| true), &prefix, wanted, |_, _| Ok(())),
                _ => bail!("unknown way to read"),
            });
        }
    }
    Ok(())
}

/// Opens a checkpoint, and verifies the tensors for whose names `needed` returns true.
fn opened(prefix: &Path, needed: impl Fn(&str) -> bool) -> FileResult<BundleReader> {
    let reader = BundleReader::open(prefix)?;
    reader.entries().filter(|(key, _)| needed(key)).try_for_each(|(key, _)| reader.verify(key))?;
    Ok(reader)
}

fn judge(
    result: FileResult<BundleReader>,
    prefix: &Path,
    wanted: &Json,
    right: impl FnOnce(&BundleReader, &Json) -> Result<()>,
) -> Result<()> {
    match (result, wanted.get("ok"), wanted.get("error")) {
        (Ok(reader), Some(wanted), None) => right(&reader, wanted),
        (Err(error), None, Some(wanted)) => words(&error, prefix, wanted),
        (Err(error), Some(_), None) => bail!("it failed: {error}"),
        (Ok(_), None, Some(wanted)) => bail!("it did not fail, but should have: {wanted}"),
        _ => bail!("the case has neither \"ok\" nor \"error\""),
    }
}

/// Checks that the error names the file, and that it has the text that corresponds to TensorFlow's message. Fails for an unknown message.
fn words(error: &FileError, prefix: &Path, wanted: &Json) -> Result<()> {
    let file = error.path().display().to_string();
    ensure!(file.starts_with(&prefix.display().to_string()), "the error is about {file}");
    let (text, wanted) = (error.to_string(), wanted["message"].as_str().context("no message")?);
    let said = |words: &str| ensure_words(&text, words);
    let number = |before: &str| {
        let digits: String = wanted.split_once(before)?.1.chars().take_while(char::is_ascii_digit).collect();
        Some(digits)
    };
    if let (Some(stored), Some(computed)) = (number("stored "), number("calculated on the restored bytes ")) {
        said(&format!("stored {stored}, computed {computed}"))?;
        return said("tensor \"");
    }
    let alike = [
        ("block checksum mismatch", "block checksum mismatch"),
        ("too short to be an sstable", "too short to be an index"),
        ("bad magic number", "magic number"),
        ("Failed to find any matching files", "there is no such file"),
        ("No such file or directory", "No such file"),
        ("Read less bytes than requested", "too early"),
    ];
    let (_, own) = alike.iter().find(|(theirs, _)| wanted.contains(theirs)).with_context(|| format!("unknown message: {wanted}"))?;
    said(own)
}

fn ensure_words(text: &str, words: &str) -> Result<()> {
    ensure!(text.contains(words), "got: {text}\nwanted: {words}");
    Ok(())
}

/// Compares the names and shapes of all tensors.
fn variables(reader: &BundleReader, wanted: &Json) -> Result<()> {
    let found: Json = reader.entries().map(|(key, entry)| json!([key, entry.dims()])).collect();
    ensure!(found == *wanted, "the checkpoint lists {found}");
    Ok(())
}

/// Compares the values of some tensors, which are nested lists in the case.
fn values(reader: &BundleReader, wanted: &Json) -> Result<()> {
    for (key, wanted) in wanted.as_object().context("expected a JSON object")? {
        let entry = reader.entry(key).with_context(|| format!("the checkpoint has no tensor {key:?}"))?;
        let dtype = dtype_name(entry.dtype());
        let count = flat(wanted).len();
        let wanted = flat(wanted).into_iter().map(|value| {
            Ok::<_, anyhow::Error>(match dtype.as_str() {
                "float32" => (float(value)? as f32).to_le_bytes().to_vec(),
                "float64" => float(value)?.to_le_bytes().to_vec(),
                _ => value.as_i64().or(value.as_bool().map(i64::from)).context("no integer")?.to_le_bytes()
                    [..parsed_json::dtype(&dtype)?.size()]
                    .to_vec(),
            })
        });
        let wanted = wanted.collect::<Result<Vec<_>>>()?.concat();
        ensure!(entry.dims().iter().product::<u64>() == count as u64, "{key:?} has the shape {:?}", entry.dims());
        ensure!(reader.bytes(key)? == wanted, "the values of {key:?} differ");
    }
    Ok(())
}

/// Returns the values of nested lists, flattened.
fn flat(json: &Json) -> Vec<&Json> {
    json.as_array().map_or(vec![json], |items| items.iter().flat_map(flat).collect())
}
