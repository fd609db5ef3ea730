//! A reader of event files that can continue after damage.

use crate::files::{FileError, FileResult};
use crate::formats::proto::Event;
use crate::formats::tfrecord::{Compression, Fault, RecordError, RecordReader, find_record, is_record};
use prost::Message;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Statistics of the damaged parts that a reader skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of damaged regions.
    pub places: u64,
    /// Number of bytes skipped.
    pub bytes: u64,
}

/// Iterator over the events of a file. For a damaged region it returns an error, which states the problem and the number of
/// bytes skipped. It then continues at the next intact record.
///
/// ```
/// use gradlet::summary::{self, EventReader};
/// let folder = tempfile::tempdir()?;
/// let writer = summary::create_file_writer(folder.path())?;
/// (0..3).try_for_each(|step| writer.scalar("loss", 0.5, step))?;
/// writer.close()?;
///
/// let mut bytes = std::fs::read(writer.path())?;
/// let last = bytes.len() - 1;
/// bytes[last] ^= 1;
/// std::fs::write(writer.path(), bytes)?;
/// let mut reader = EventReader::open(writer.path())?;
/// let steps: Vec<i64> = reader.by_ref().flatten().map(|event| event.step).collect();
/// assert_eq!(steps, [0, 0, 1]); // the first event holds the version
/// assert_eq!(reader.skipped().places, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EventReader {
    path: PathBuf,
    records: RecordReader<File>,
    skipped: Skipped,
    ended: bool,
}

impl EventReader {
    /// Opens the file at `path`. Fails if it cannot be opened.
    pub fn open(path: &Path) -> FileResult<EventReader> {
        let records = RecordReader::open(path, Compression::None).map_err(|error| plain(path, &error))?;
        // A length is checked against the size of the file, so it needs no other limit.
        let records = records.max_record_bytes(u64::MAX);
        Ok(EventReader { path: path.into(), records, skipped: Skipped::default(), ended: false })
    }

    /// Returns the statistics of the parts skipped so far.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Returns the offset of the next record, in bytes.
    pub fn offset(&self) -> u64 {
        self.records.offset()
    }

    /// Continues at the next intact record after the damaged one at `start`, and returns the error to report. `text` describes
    /// the problem. `behind` is the end of the damaged record if its length is correct. If no record begins there, the length
    /// itself may be wrong, so the whole rest of the file is searched.
    fn skip(&mut self, start: u64, behind: Option<u64>, text: &str) -> FileResult<FileError> {
        let io = |error| FileError::io(&self.path, error);
        let end = std::fs::metadata(&self.path).map_or(start, |known| known.len().max(start));
        let next = match behind {
            Some(behind) if behind == end => None,
            Some(behind) if is_record(&self.path, behind).map_err(io)? => Some(behind),
            _ => find_record(&self.path, start + 1).map_err(io)?,
        };
        let to = next.unwrap_or(end);
        let records = RecordReader::open_at(&self.path, to).map_err(|error| plain(&self.path, &error))?;
        self.records = records.max_record_bytes(u64::MAX);
        self.skipped.places += 1;
        self.skipped.bytes += to - start;
        self.ended = next.is_none();
        let rest = if next.is_some() { format!("up to the record at {to}") } else { "no whole record follows".into() };
        Ok(FileError::new(&self.path, format!("{text}; {} bytes are skipped: {rest}", to - start)))
    }
}

impl Iterator for EventReader {
    type Item = FileResult<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let start = self.records.offset();
        let (behind, text) = match self.records.next_record() {
            Some(Ok(record)) => match Event::decode(record) {
                Ok(event) => return Some(Ok(event)),
                Err(error) => (Some(self.records.offset()), format!("the record at {start} is not an event: {error}")),
            },
            Some(Err(error)) => match error.fault() {
                Fault::Data { offset, length, .. } => (Some(offset + length + 4), error.fault().to_string()),
                Fault::Length { .. } | Fault::Truncated { .. } => (None, error.fault().to_string()),
                _ => {
                    self.ended = true;
                    return Some(Err(plain(&self.path, &error)));
                }
            },
            None => {
                self.ended = true;
                let end = std::fs::metadata(&self.path).map_or(start, |known| known.len());
                if self.records.cut().is_none() || end <= start {
                    return None;
                }
                (Some(end), format!("the file ends after {} bytes of a record's length", end - start))
            }
        };
        let skipped = self.skip(start, behind, &text);
        self.ended |= skipped.is_err();
        Some(Err(skipped.unwrap_or_else(|error| error)))
    }
}

fn plain(path: &Path, error: &RecordError) -> FileError {
    FileError::new(path, error.fault().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensorboard::summary::create_file_writer;

    fn written(folder: &Path, steps: i64) -> (PathBuf, Vec<u8>) {
        let writer = create_file_writer(folder).unwrap();
        (0..steps).for_each(|step| writer.scalar("loss", step, step).unwrap());
        writer.close().unwrap();
        (writer.path().into(), std::fs::read(writer.path()).unwrap())
    }

    fn read(path: &Path) -> (Vec<i64>, Vec<String>, Skipped) {
        let mut reader = EventReader::open(path).unwrap();
        let (mut steps, mut errors) = (Vec::new(), Vec::new());
        for event in reader.by_ref() {
            match event {
                Ok(event) => steps.push(event.step),
                Err(error) => errors.push(error.to_string()),
            }
        }
        (steps, errors, reader.skipped())
    }

    #[test]
    fn any_wrong_byte_costs_one_event() {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = written(folder.path(), 4);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            let (steps, errors, skipped) = read(&path);
            assert_eq!((steps.len(), errors.len(), skipped.places), (4, 1, 1), "byte {at}: {errors:?}");
            assert!(errors[0].contains("skipped"), "{}", errors[0]);
        }
    }

    #[test]
    fn any_end_and_anything_between_is_survived() {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = written(folder.path(), 3);
        let whole = read(&path).0;
        for end in 0..bytes.len() {
            std::fs::write(&path, &bytes[..end]).unwrap();
            let (steps, errors, _) = read(&path);
            assert!(whole.starts_with(&steps) && errors.len() <= 1, "cut at {end}: {steps:?} {errors:?}");
            // Records that a second writer appended to a truncated file are found.
            std::fs::write(&path, [&bytes[..end], &bytes[..]].concat()).unwrap();
            assert!(read(&path).0.ends_with(&whole), "cut at {end}, then appended to");
        }
        let noise: Vec<u8> = (0..5000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(&path, [&noise[..], &bytes, &noise].concat()).unwrap();
        let (steps, errors, skipped) = read(&path);
        assert_eq!((steps, errors.len(), skipped.bytes), (whole, 2, 10_000));
    }
}
