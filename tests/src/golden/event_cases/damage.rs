//! Damaged event files. gradlet reads all records that TensorFlow and TensorBoard read before the damage, and all intact records after it.

use super::steps;
use crate::golden::checks::Checks;
use anyhow::{Context, Result, ensure};
use gradlet::io::proto::Event;
use gradlet::summary::{EventReader, Run};
use prost::Message;
use serde_json::Value as Json;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

pub fn damage(folder: &Path, stem: &str, json: &Json, checks: &mut Checks) -> Result<()> {
    let offsets: Vec<usize> = steps(&json["record_offsets"])?.iter().map(|&offset| offset as usize).collect();
    for (name, case) in json.as_object().context("expected a JSON object")?.iter().filter(|(name, _)| *name != "record_offsets") {
        checks.check(&format!("{stem} {name}"), || one(&folder.join(stem).join(name), case, &offsets));
    }
    Ok(())
}

fn one(folder: &Path, case: &Json, offsets: &[usize]) -> Result<()> {
    let files = Run::files(folder)?;
    let [path] = files.as_slice() else { anyhow::bail!("{} event files instead of one", files.len()) };
    let mut reader = EventReader::open(path)?;
    let (mut before, mut all, mut errors) = (None, Vec::new(), Vec::new());
    for event in reader.by_ref() {
        match event {
            Ok(event) => all.push(event),
            Err(error) => {
                before.get_or_insert(all.len());
                errors.push(error.to_string());
            }
        }
    }
    let wanted = &case["summary_iterator"];
    ensure!(wanted["events"] == before.unwrap_or(all.len()), "{before:?} events before the damage, wanted {}", wanted["events"]);
    // If a file ends within a record's header, TensorFlow reports a clean end. gradlet reports the remaining bytes.
    if let Some(message) = wanted["end"]["message"].as_str() {
        let begins = message.split('\'').next().unwrap_or_default();
        ensure!(errors[0].contains(begins), "{errors:?} instead of {message}");
    }
    let whole = whole(&fs::read(path)?, offsets);
    ensure!(all == whole, "{} events were read, but {} are intact", all.len(), whole.len());

    let run = Run::read(folder)?;
    ensure!(run.damage.len() == errors.len() && run.skipped == reader.skipped(), "{:?}", run.damage);
    for (tag, wanted) in case["event_accumulator_steps"]["ok"].as_object().context("no steps")? {
        let wanted = steps(wanted)?;
        let points = run.series(tag).map_or(&[][..], |series| &series.points);
        let found: Vec<i64> = points.iter().map(|point| point.step).collect();
        ensure!(found.starts_with(&wanted), "{tag}: {found:?}, wanted {wanted:?} first");
    }
    Ok(())
}

/// Returns the events of the records at `offsets` whose checksums are correct.
fn whole(bytes: &[u8], offsets: &[usize]) -> Vec<Event> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for &offset in offsets.iter().filter(|&&offset| seen.insert(offset)) {
        let Some(rest) = bytes.get(offset..) else { continue };
        let Some(length) = rest.first_chunk().map(|&length| u64::from_le_bytes(length) as usize) else { continue };
        let Some(record) = rest.get(..length.saturating_add(16)) else { continue };
        let stored = |at: usize| record[at..].first_chunk().map(|&crc| u32::from_le_bytes(crc));
        let right = |range: std::ops::Range<usize>, at: usize| stored(at) == Some(gradlet::io::tfrecord::masked_crc32c(&record[range]));
        if right(0..8, 8) && right(12..12 + length, 12 + length) {
            found.extend(Event::decode(&record[12..12 + length]));
        }
    }
    found
}
