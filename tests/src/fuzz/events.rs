//! Properties of any bytes that are read as an event file, for the fuzz target and for the short run in the tests.

use gradlet::io::tfrecord::{Compression, RecordWriter};
use gradlet::summary::{EventReader, Run};
use std::fs;
use std::path::Path;

/// Counts of a file's contents.
#[derive(Debug, Default)]
pub struct Found {
    /// Number of events.
    pub events: usize,
    /// Number of values, of all tags.
    pub points: usize,
    /// Number of damaged byte ranges, which the reader skips.
    pub damaged: usize,
}

/// Writes `data` as an event file to the folder `folder`, and reads it event by event and as a run. Panics if the two results differ. If
/// the first byte is 0, the rest is a file. Otherwise it holds records, each after a length of two bytes; this function adds their
/// checksums.
pub fn exercise(folder: &Path, data: &[u8]) -> Found {
    let Some((&choice, rest)) = data.split_first() else { return Found::default() };
    let bytes = if choice == 0 { rest.to_vec() } else { framed(rest) };
    let path = folder.join("events.out.tfevents.fuzzed");
    fs::write(&path, &bytes).expect("the folder can be written to");
    let mut reader = EventReader::open(&path).expect("the file is there");
    let (mut events, mut errors) = (0, Vec::new());
    for event in reader.by_ref() {
        match event {
            Ok(_) => events += 1,
            Err(error) => errors.push(error.to_string()),
        }
    }
    let skipped = reader.skipped();
    assert!(skipped.bytes + 16 * events as u64 <= bytes.len() as u64, "{skipped:?} of {} bytes, {events} events", bytes.len());
    assert_eq!(skipped.places, errors.len() as u64);
    let run = Run::read(&path).expect("the file is there");
    assert_eq!(run.damage.iter().map(ToString::to_string).collect::<Vec<_>>(), errors);
    let points: Vec<_> = run.all().flat_map(|(_, _, series)| &series.points).collect();
    for point in &points {
        // These calls may return an error, but must not panic.
        let _ = (point.tensor(), point.number());
    }
    Found { events, points: points.len(), damaged: errors.len() }
}

fn framed(mut bytes: &[u8]) -> Vec<u8> {
    let mut writer = RecordWriter::new(Vec::new(), Compression::None);
    while let Some((&[low, high], rest)) = bytes.split_first_chunk() {
        let (record, rest) = rest.split_at(usize::from(u16::from_le_bytes([low, high])).min(rest.len()));
        writer.write(record).expect("memory can be written to");
        bytes = rest;
    }
    writer.into_inner().expect("memory can be written to")
}
