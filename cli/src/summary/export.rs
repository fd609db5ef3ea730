//! The command `gradlet summary export`.

use super::media::Folder;
use super::runs::{Input, plugin};
use super::values::{json, number};
use crate::print;
use anyhow::{Context, Result, bail};
use clap::Args;
use gradlet::io::WholeFile;
use gradlet::summary::{Kind, Series};
use indicatif::HumanCount;
use serde_json::json;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Export the contents of event files to CSV, JSON, and image and audio files
///
/// Damaged records are skipped, and all intact ones are written. The exit code is 1 if there was damage.
#[derive(Args)]
#[command(after_help = "Examples:
  gradlet summary export logs --csv losses.csv --tag '*loss*'
  gradlet summary export logs --run train --json train.json --media pictures")]
pub struct Export {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    output: Output,
}

/// The output files.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Output {
    /// CSV file with all numbers, one per line: run, tag, step, wall_time (seconds since 1970), value
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// JSON file with all points of all tags and their values; images and audio are represented by their sizes
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder for images and audio: DIR/RUN/TAG/STEP.png and .wav
    #[arg(long, value_name = "DIR")]
    media: Option<PathBuf>,
}

/// Counts of written values.
#[derive(Default)]
struct Written {
    numbers: u64,
    points: u64,
}

impl Export {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let Output { csv, json, media } = &self.output;
        let mut csv = csv.as_deref().map(Table::create).transpose()?;
        let mut json = json.as_deref().map(Document::create).transpose()?;
        let mut media = media.as_deref().map(Folder::new);
        let (mut written, mut runs, mut damaged) = (Written::default(), 0, 0);
        self.input.each(quiet, |name, _, run| {
            runs += 1;
            damaged += usize::from(!run.damage.is_empty());
            for (kind, tag, series) in self.input.series(&run) {
                written.points += series.points.len() as u64;
                let numbers = csv.as_mut().map(|table| table.add(name, tag, series)).transpose()?;
                written.numbers += numbers.unwrap_or(0);
                json.as_mut().map(|document| document.add(name, kind, tag, series)).transpose()?;
                media.as_mut().map(|folder| folder.add(name, plugin(kind, series), tag, series)).transpose()?;
            }
            Ok(())
        })?;
        let mut text = String::new();
        if let Some(Table(table, path)) = csv {
            let file = table.into_inner().map_err(|error| error.into_error()).with_context(|| path.display().to_string())?;
            finish(file, &path)?;
            text += &format!("{} numbers in {}\n", HumanCount(written.numbers), path.display());
        }
        if let Some(document) = json {
            let path = document.finish()?;
            text += &format!("{} points in {}\n", HumanCount(written.points), path.display());
        }
        if let Some(folder) = media {
            text += &format!("{} files in {}\n", HumanCount(folder.files()), folder.path().display());
        }
        print(&text)?;
        if damaged > 0 {
            bail!("{damaged} of {runs} runs are damaged: run `gradlet summary inspect` for details");
        }
        Ok(())
    }
}

type File = BufWriter<WholeFile>;

fn create(path: &Path) -> Result<File> {
    Ok(BufWriter::new(WholeFile::create(path)?))
}

fn finish(file: File, path: &Path) -> Result<()> {
    let file = file.into_inner().map_err(|error| error.into_error()).with_context(|| path.display().to_string())?;
    Ok(file.finish()?)
}

/// Writer and path of the CSV file.
struct Table(csv::Writer<File>, PathBuf);

impl Table {
    fn create(path: &Path) -> Result<Table> {
        let mut table = csv::Writer::from_writer(create(path)?);
        table.write_record(["run", "tag", "step", "wall_time", "value"])?;
        Ok(Table(table, path.into()))
    }

    /// Writes the points of a series that are numbers. Returns the number of points written.
    fn add(&mut self, run: &str, tag: &str, series: &Series) -> Result<u64> {
        let mut count = 0;
        for point in &series.points {
            if let Some(number) = number(point) {
                self.0.write_record([run, tag, &point.step.to_string(), &point.wall_time.to_string(), &number])?;
                count += 1;
            }
        }
        Ok(count)
    }
}

/// The JSON file: an array with an object for each tag of each run. Each point has a line.
struct Document {
    file: File,
    path: PathBuf,
    empty: bool,
}

impl Document {
    fn create(path: &Path) -> Result<Document> {
        let mut file = create(path)?;
        file.write_all(b"[")?;
        Ok(Document { file, path: path.into(), empty: true })
    }

    fn add(&mut self, run: &str, kind: Kind, tag: &str, series: &Series) -> Result<()> {
        let plugin = plugin(kind, series);
        let head = json!({ "run": run, "tag": tag, "plugin": plugin, "description": series.metadata.summary_description });
        let head = head.to_string();
        let between = if std::mem::take(&mut self.empty) { "\n" } else { ",\n" };
        write!(self.file, "{between}{},\"points\":[", head.trim_end_matches('}'))?;
        for (index, point) in series.points.iter().enumerate() {
            let value = json!({ "step": point.step, "wall_time": point.wall_time, "value": json(plugin, point) });
            write!(self.file, "{}\n  {value}", if index == 0 { "" } else { "," })?;
        }
        Ok(write!(self.file, "]}}")?)
    }

    fn finish(mut self) -> Result<PathBuf> {
        self.file.write_all(b"\n]\n")?;
        finish(self.file, &self.path)?;
        Ok(self.path)
    }
}
