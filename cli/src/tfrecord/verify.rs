//! The command `gradlet tfrecord verify`.

use super::input::{Input, Output, records};
use super::inspect::cut;
use crate::print;
use anyhow::{Result, bail};
use clap::Args;
use gradlet::io::tfrecord::{Compression, Fault, RecordError, RecordReader};
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Check every checksum of TFRecord files, and report the byte at which a file is damaged
///
/// In an uncompressed file, the records after damaged data are checked too. A file that is truncated within a record's length
/// counts as damaged, although other readers treat this as the end of the file. The exit code is 1 if a file is damaged.
#[derive(Args)]
#[command(after_help = "Examples:
  gradlet tfrecord verify shards/*.tfrecord
  gradlet tfrecord verify broken.tfrecord --save whole.tfrecord")]
pub struct Verify {
    #[command(flatten)]
    input: Input,
    /// Write the intact records of all files to this file, with the compression of the first input
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Result of checking a file.
#[derive(Default)]
struct Found {
    records: u64,
    /// The damage: the offset, if it is known, and a message.
    damage: Vec<(Option<u64>, String)>,
}

impl Verify {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let bar = self.input.bar(quiet)?;
        let mut save = match &self.save {
            Some(path) => Some(Output::create(path, None, self.input.compression(&self.input.files[0])?)?),
            None => None,
        };
        let (mut text, mut files, mut damaged) = (String::new(), Vec::new(), 0);
        for path in &self.input.files {
            let mut found = Found::default();
            let next = found.read(self.input.open(path, &bar)?, &mut save)?;
            self.go_on(path, next, &mut found, &mut save)?;
            damaged += usize::from(!found.damage.is_empty());
            found.text(path, &mut text)?;
            files.push(found.json(path));
        }
        bar.finish_and_clear();
        if let Some(save) = save {
            save.finish()?;
        }
        match self.json {
            true => print(&format!("{:#}\n", json!({ "files": files })))?,
            false => print(&text)?,
        }
        if damaged > 0 {
            bail!("{damaged} of {} files are damaged", files.len());
        }
        Ok(())
    }

    /// Continues to check an uncompressed file at the record that begins at byte `next`, and again after each record with damaged
    /// data. Does nothing if `next` is `None` or the file is compressed.
    fn go_on(&self, path: &Path, mut next: Option<u64>, found: &mut Found, save: &mut Option<Output>) -> Result<()> {
        while let Some(offset) = next.filter(|_| self.input.compression(path).is_ok_and(|kind| kind == Compression::None)) {
            next = found.read(self.input.open_at(path, offset)?, save)?;
        }
        Ok(())
    }
}

impl Found {
    /// Checks records up to the end of the file or the first damage, and writes the intact ones to `save`. If only the data of a
    /// record is damaged, returns the offset of the next record. At the end and after other damage, returns `None`.
    fn read<R: Read>(&mut self, mut reader: RecordReader<R>, save: &mut Option<Output>) -> Result<Option<u64>> {
        while let Some(record) = reader.next_record() {
            match record {
                Ok(record) => {
                    self.records += 1;
                    save.as_mut().map_or(Ok(()), |save| save.write(record))?;
                }
                Err(error) if error.is_data_loss() => {
                    self.damage.push((error.offset(), what(&error)));
                    return Ok(match error.fault() {
                        Fault::Data { offset, length, .. } => Some(offset + length + 4),
                        _ => None,
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.damage.extend(cut(&reader).map(|text| (reader.cut(), text)));
        Ok(None)
    }

    fn text(&self, path: &Path, text: &mut String) -> Result<()> {
        let count = records(self.records);
        match self.damage.as_slice() {
            [] => writeln!(text, "{}: whole, {count}", path.display())?,
            damage => {
                writeln!(text, "{}: damaged, {count} whole", path.display())?;
                damage.iter().try_for_each(|(_, what)| writeln!(text, "  {what}"))?;
            }
        }
        Ok(())
    }

    fn json(&self, path: &Path) -> Value {
        let damage = self.damage.iter().map(|(offset, text)| json!({ "offset": offset, "text": text }));
        let damage: Vec<Value> = damage.collect();
        json!({ "path": path.display().to_string(), "whole": damage.is_empty(), "records": self.records, "damage": damage })
    }
}

/// Returns the error message without the name of the file.
fn what(error: &RecordError) -> String {
    error.fault().to_string()
}
