//! Logs of epochs as a CSV file.

use super::{Callback, Logs, Model};
use crate::files::FileError;
use crate::values::numbers::python;
use gradlet_core::Result;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Keras's `CSVLogger`: writes a line per epoch to a file. The logs of the first epoch determine the columns.
///
/// ```
/// use gradlet::train::callbacks::CsvLogger;
/// let log = CsvLogger::new("training.csv").separator(';').append(true);
/// ```
#[derive(Debug)]
pub struct CsvLogger {
    path: PathBuf,
    separator: char,
    append: bool,
    file: Option<File>,
    has_header: bool,
    columns: Vec<String>,
}

impl CsvLogger {
    /// Creates a logger that writes to this file, with commas as separators.
    pub fn new(path: impl Into<PathBuf>) -> CsvLogger {
        CsvLogger { path: path.into(), separator: ',', append: false, file: None, has_header: false, columns: Vec::new() }
    }

    /// Sets the separator between columns.
    pub fn separator(self, separator: char) -> CsvLogger {
        CsvLogger { separator, ..self }
    }

    /// Appends to an existing file if `append` is true. By default, the file is overwritten.
    pub fn append(self, append: bool) -> CsvLogger {
        CsvLogger { append, ..self }
    }

    fn line(&self, cells: impl Iterator<Item = String>) -> String {
        let special = |c: char| c == self.separator || c == '"' || c == '\n' || c == '\r';
        let quoted = |cell: String| if cell.contains(special) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell };
        cells.map(quoted).collect::<Vec<_>>().join(&self.separator.to_string()) + "\r\n"
    }
}

impl Callback for CsvLogger {
    fn reads_batches(&self) -> bool {
        false
    }

    fn on_train_begin(&mut self, _: &Model) -> Result<()> {
        let io = |error| FileError::io(&self.path, error);
        self.has_header = self.append && self.path.metadata().is_ok_and(|metadata| metadata.len() > 0);
        let file = OpenOptions::new().create(true).write(true).append(self.append).truncate(!self.append).open(&self.path);
        self.file = Some(file.map_err(io)?);
        self.columns.clear();
        Ok(())
    }

    fn on_epoch_end(&mut self, _: &Model, epoch: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        let mut text = String::new();
        if self.columns.is_empty() {
            self.columns = logs.iter().map(|(name, _)| name.to_string()).collect();
            self.columns.sort();
            // Validation may start in a later epoch.
            if self.columns.iter().all(|name| !name.starts_with("val_")) {
                self.columns.extend_from_within(..);
                let half = self.columns.len() / 2;
                self.columns[half..].iter_mut().for_each(|name| name.insert_str(0, "val_"));
            }
            if !self.has_header {
                text += &self.line(std::iter::once("epoch".into()).chain(self.columns.iter().cloned()));
            }
        }
        let cells = self.columns.iter().map(|name| logs.get(name).map_or("NA".into(), python));
        text += &self.line(std::iter::once(epoch.to_string()).chain(cells));
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(text.as_bytes()).and_then(|()| file.flush()));
        written.map_err(|error| FileError::io(&self.path, error))?;
        Ok(ControlFlow::Continue(()))
    }

    fn on_train_end(&mut self, _: &Model) -> Result<()> {
        self.file = None;
        Ok(())
    }
}
