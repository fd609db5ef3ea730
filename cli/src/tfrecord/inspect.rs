//! The command `gradlet tfrecord inspect`.

use super::features::{Table, line};
use super::input::{Input, records, size};
use crate::print;
use anyhow::{Result, bail};
use clap::Args;
use gradlet::io::tfrecord::RecordReader;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Show the number and sizes of records in TFRecord files, a table of the features of Examples, and the first records
///
/// A file is read up to the first damage. The exit code is 1 if there was damage.
#[derive(Args)]
#[command(after_help = "Examples:
  gradlet tfrecord inspect train.tfrecord
  gradlet tfrecord inspect --first 10 'shards/train-00000-of-00004.tfrecord'
  gradlet tfrecord inspect --json *.tfrecord")]
pub struct Inspect {
    #[command(flatten)]
    input: Input,
    /// Show the first N records of each file
    #[arg(long, value_name = "N", default_value_t = 3)]
    first: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Contents of a file.
struct Content {
    file_bytes: u64,
    compression: String,
    records: u64,
    /// Sizes in bytes: of the shortest record, of the longest record, and of all together.
    shortest: usize,
    longest: usize,
    all: u64,
    first: Vec<First>,
    damage: Option<String>,
}

/// One of the first records.
struct First {
    offset: u64,
    length: usize,
    line: String,
}

impl Inspect {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let (mut table, mut text, mut files, mut damaged) = (Table::default(), String::new(), Vec::new(), 0);
        let bar = self.input.bar(quiet)?;
        for path in &self.input.files {
            let content = self.read(path, &bar, &mut table)?;
            damaged += usize::from(content.damage.is_some());
            content.text(path, &mut text)?;
            files.push(content.json(path));
        }
        bar.finish_and_clear();
        match self.json {
            true => print(&format!("{:#}\n", json!({ "files": files, "table": table.json() })))?,
            false => print(&(text + &table.text()))?,
        }
        if damaged > 0 {
            bail!("{damaged} of {} files are damaged: run `gradlet tfrecord verify` for details", files.len());
        }
        Ok(())
    }

    fn read(&self, path: &Path, bar: &ProgressBar, table: &mut Table) -> Result<Content> {
        let mut content = Content {
            file_bytes: size(path)?,
            compression: self.input.compression(path)?.to_string(),
            records: 0,
            shortest: usize::MAX,
            longest: 0,
            all: 0,
            first: Vec::new(),
            damage: None,
        };
        let mut reader = self.input.open(path, bar)?;
        let mut offset = 0;
        while let Some(record) = reader.next_record() {
            match record {
                Ok(record) => content.add(record, offset, self.first, table),
                Err(error) => content.damage = Some(error.to_string()),
            }
            offset = reader.offset();
        }
        content.damage = content.damage.or_else(|| cut(&reader));
        Ok(content)
    }
}

/// Returns a message if the reader reached the end of a truncated file without an error. Returns `None` if the file is
/// complete, or if the reader already reported the damage.
pub fn cut<R: std::io::Read>(reader: &RecordReader<R>) -> Option<String> {
    reader.cut().map(|offset| format!("cut short after byte {offset} of the uncompressed records"))
}

impl Content {
    fn add(&mut self, record: &[u8], offset: u64, first: usize, table: &mut Table) {
        if self.first.len() < first {
            self.first.push(First { offset, length: record.len(), line: line(record) });
        }
        self.records += 1;
        self.shortest = self.shortest.min(record.len());
        self.longest = self.longest.max(record.len());
        self.all += record.len() as u64;
        table.add(record);
    }

    fn text(&self, path: &Path, text: &mut String) -> Result<()> {
        let Content { file_bytes, compression, records: count, shortest, longest, all, .. } = self;
        let packed = if compression == "none" { String::new() } else { format!(", {compression}") };
        writeln!(text, "{}: {}, {}{packed}", path.display(), records(*count), HumanBytes(*file_bytes))?;
        if *count > 0 {
            let mean = all / count;
            writeln!(
                text,
                "  {} to {} bytes each, {} on average",
                HumanCount(*shortest as u64),
                HumanCount(*longest as u64),
                HumanCount(mean)
            )?;
        }
        for (index, First { offset, length, line }) in self.first.iter().enumerate() {
            writeln!(text, "  record {index} at byte {offset}, {length} bytes: {line}")?;
        }
        if let Some(damage) = &self.damage {
            writeln!(text, "  then damage: {damage}")?;
        }
        Ok(())
    }

    fn json(&self, path: &Path) -> Value {
        let first = self.first.iter().map(|First { offset, length, line }| json!({ "offset": offset, "length": length, "text": line }));
        json!({
            "path": path.display().to_string(),
            "file_bytes": self.file_bytes,
            "compression": self.compression,
            "records": self.records,
            "record_bytes": { "min": if self.records > 0 { self.shortest } else { 0 }, "max": self.longest, "sum": self.all },
            "first": first.collect::<Vec<_>>(),
            "damage": self.damage,
        })
    }
}
