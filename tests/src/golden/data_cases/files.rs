//! Cases of datasets that read files.

use super::same_words;
use crate::golden::checks::hex_field;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use gradlet::Dataset;
use gradlet::io::tfrecord::Compression;
use gradlet::io::{FixedLength, list_files};
use serde_json::Value as Json;
use std::path::Path;

/// Runs the program `name`, which reads a file of the folder. Fails if its result differs from `wanted`.
pub fn one(folder: &Path, name: &str, wanted: &Json) -> Result<()> {
    let file = |wanted: &Json| Ok::<_, anyhow::Error>(folder.join(wanted["file"].as_str().context("no file")?));
    match name {
        "text_line" => {
            same(&Dataset::text_lines(&[file(wanted)?], Compression::None), &wanted["lines"])?;
            let text = wanted["missing_file"]["error"]["core"].as_str().context("no error")?;
            let missing = Dataset::text_lines(&[folder.join(inside(text, ';')?)], Compression::None);
            fails(missing.iter().next(), &wanted["missing_file"], folder)
        }
        "fixed_length" => {
            let number = |name: &str| Ok::<_, anyhow::Error>(wanted[name].as_u64().with_context(|| name.to_string())? as usize);
            let (header_bytes, footer_bytes) = (number("header_bytes")?, number("footer_bytes")?);
            let layout = FixedLength { record_bytes: number("record_bytes")?, header_bytes, footer_bytes };
            same(&Dataset::fixed_length_records(&[file(wanted)?], layout, Compression::None), &wanted["records"])?;
            // Only the error contains the numbers of the second program.
            let text = wanted["not_divisible"]["error"]["core"].as_str().context("no error")?;
            let numbers: Vec<usize> =
                text.split('(').skip(1).map(|part| part.split(' ').next().unwrap_or("").parse()).collect::<Result<_, _>>()?;
            let [header_bytes, footer_bytes, record_bytes] = numbers[..] else { bail!("{text:?} does not contain three numbers") };
            let layout = FixedLength { record_bytes, header_bytes, footer_bytes };
            let odd = Dataset::fixed_length_records(&[file(wanted)?], layout, Compression::None);
            fails(odd.iter().next(), &wanted["not_divisible"], folder)
        }
        _ => {
            let pattern = inside(wanted["error"]["message"].as_str().context("no error")?, '\'')?;
            let found = list_files(&[folder.join(pattern).display().to_string()], None);
            let error = found.err().context("it succeeds")?.to_string();
            ensure!(error.contains("No files matched pattern"), "{error:?}, wanted {wanted}");
            Ok(())
        }
    }
}

/// Returns the path after `<DIR>/` in a text, up to the character `end`. Fails if the text contains no such path.
fn inside(text: &str, end: char) -> Result<&str> {
    let path = text.split_once("<DIR>/").and_then(|(_, rest)| rest.split(end).next());
    path.with_context(|| format!("{text:?} contains no path"))
}

fn same(dataset: &Dataset<Bytes>, wanted: &Json) -> Result<()> {
    let records: Vec<Bytes> = dataset.iter().collect::<gradlet::Result<_>>()?;
    let wanted = wanted.as_array().context("expected a JSON list")?.iter().map(hex_field).collect::<Result<Vec<_>>>()?;
    ensure!(records == wanted, "{records:?}, wanted {wanted:?}");
    Ok(())
}

fn fails(first: Option<gradlet::Result<Bytes>>, wanted: &Json, folder: &Path) -> Result<()> {
    let error = first.context("no element")?.err().context("it succeeds")?.to_string();
    same_words(&error.replace(&folder.display().to_string(), "<DIR>"), &wanted["error"])
}
