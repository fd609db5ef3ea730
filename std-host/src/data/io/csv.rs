//! CSV files.

use super::lines::{of_files, open};
use crate::data::dataset::Dataset;
use crate::files::{FileError, FileResult};
use crate::formats::tfrecord::Compression;
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use gradlet_core::Result;
use serde::de::DeserializeOwned;
use std::io::BufRead;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// Options for reading CSV files. Equivalent of `tf.data.experimental.CsvDataset`. Fields are separated by commas. Fields that contain
/// commas are in quotes.
///
/// ```
/// use gradlet::io::{Csv, write_file};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("prices.csv");
/// write_file(&path, b"year,city,price\n2013,\"Berlin, Mitte\",12000\n2014,,14000.5\n")?;
/// let csv = Csv::new().header(true).record_defaults(&[None, Some("elsewhere"), None]);
/// let rows: Vec<_> = csv.dataset::<(i32, String, f32)>(&[&path]).iter().collect::<gradlet::Result<_>>()?;
/// assert_eq!(rows, [(2013, "Berlin, Mitte".to_string(), 12000.0), (2014, "elsewhere".to_string(), 14000.5)]);
/// let prices = csv.select_cols(&[2]).record_defaults(&[Some("0")]).dataset::<f32>(&[path]).batch(2).get_single_element()?;
/// assert_eq!(prices.to_vec::<f32>()?, [12000.0, 14000.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Csv {
    header: bool,
    field_delim: u8,
    use_quote_delim: bool,
    na_value: String,
    record_defaults: Vec<Option<String>>,
    select_cols: Option<Vec<usize>>,
    compression: Compression,
}

impl Default for Csv {
    fn default() -> Csv {
        Csv {
            header: false,
            field_delim: b',',
            use_quote_delim: true,
            na_value: String::new(),
            record_defaults: Vec::new(),
            select_cols: None,
            compression: Compression::None,
        }
    }
}

impl Csv {
    /// Creates options without a header, with commas and quotes, and without default values.
    pub fn new() -> Csv {
        Csv::default()
    }

    /// If true, the first row of each file contains the names of the columns.
    pub fn header(self, header: bool) -> Csv {
        Csv { header, ..self }
    }

    /// Sets the separator of fields, an ASCII character.
    pub fn field_delim(self, field_delim: u8) -> Csv {
        Csv { field_delim, ..self }
    }

    /// If true, quotes around a field are removed. If false, they are part of the field.
    pub fn use_quote_delim(self, use_quote_delim: bool) -> Csv {
        Csv { use_quote_delim, ..self }
    }

    /// Sets the text that marks a missing field. An empty field is always a missing field.
    pub fn na_value(self, na_value: &str) -> Csv {
        Csv { na_value: na_value.into(), ..self }
    }

    /// Sets the default value of each selected column, which replaces a missing field. A missing field without a default value is an error.
    /// If no defaults are set at all, empty fields are kept.
    pub fn record_defaults(self, record_defaults: &[Option<&str>]) -> Csv {
        Csv { record_defaults: record_defaults.iter().map(|default| default.map(String::from)).collect(), ..self }
    }

    /// Selects columns by their numbers. They are returned in this order.
    pub fn select_cols(self, select_cols: &[usize]) -> Csv {
        Csv { select_cols: Some(select_cols.to_vec()), ..self }
    }

    /// Sets the compression of the files.
    pub fn compression(self, compression: Compression) -> Csv {
        Csv { compression, ..self }
    }

    /// Creates a dataset of the rows of files. `T` is the type of a row: a number, a tuple of numbers and texts, a map of numbers by column
    /// name, or a struct that derives `serde::Deserialize`.
    ///
    /// An error takes the place of a row that cannot be read. It names the file, the row (counted from 0, without the header) and the
    /// field. An error also takes the place of a file that cannot be read.
    pub fn dataset<T: DeserializeOwned + Send + 'static>(&self, files: &[impl AsRef<Path>]) -> Dataset<T> {
        let csv = self.clone();
        of_files("csv", files, move |path| csv.rows(path, open(path, csv.compression)?))
    }

    /// Returns an iterator over the rows of one file's content, as [`Csv::dataset`] reads them. Errors name `path`.
    pub fn rows<T: DeserializeOwned>(&self, path: &Path, content: impl BufRead + Send + 'static) -> FileResult<Rows<T>> {
        let mut builder = ReaderBuilder::new();
        builder.delimiter(self.field_delim).quoting(self.use_quote_delim).has_headers(self.header).flexible(true);
        let mut from = builder.from_reader(Box::new(content) as Box<dyn BufRead + Send>);
        let header = match self.header {
            true => Some(from.byte_headers().map_err(|error| FileError::new(path, error.to_string()))?.clone()),
            false => None,
        };
        let fields = header.as_ref().map(ByteRecord::len);
        let header = header.map(|header| self.select(&header).unwrap_or_default());
        Ok(Rows { csv: self.clone(), path: path.into(), from: Some(from), header, fields, read: 0, row: PhantomData })
    }

    /// Returns the selected columns of a row. The error is the number of a selected column that does not exist.
    fn select(&self, record: &ByteRecord) -> Result<ByteRecord, usize> {
        match &self.select_cols {
            None => Ok(record.clone()),
            Some(columns) => columns.iter().map(|&column| record.get(column).ok_or(column)).collect(),
        }
    }

    /// Replaces the missing fields of a row by the default values. Fails if a missing field has no default value.
    fn completed(&self, record: ByteRecord) -> Result<ByteRecord, String> {
        let missing = |field: &[u8]| field.is_empty() || field == self.na_value.as_bytes();
        if !record.iter().any(missing) {
            return Ok(record);
        }
        let complete = |(index, field): (usize, &[u8])| match self.record_defaults.get(index) {
            _ if !missing(field) => Ok(field.to_vec()),
            Some(Some(default)) => Ok(default.as_bytes().to_vec()),
            // An empty text may be intended.
            None if field.is_empty() && self.record_defaults.is_empty() => Ok(field.to_vec()),
            _ => Err(format!("Field {index} is required but missing")),
        };
        record.iter().enumerate().map(complete).collect()
    }
}

/// Iterator over the rows of a file: see [`Csv::rows`].
pub struct Rows<T> {
    csv: Csv,
    path: PathBuf,
    /// Reader of the file. `None` after the end.
    from: Option<Reader<Box<dyn BufRead + Send>>>,
    header: Option<ByteRecord>,
    /// Number of fields of a row, which the header or the first row determines.
    fields: Option<usize>,
    read: u64,
    row: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Rows<T> {
    fn row(&mut self, record: &ByteRecord) -> Result<T, String> {
        let fields = *self.fields.get_or_insert(record.len());
        if record.len() != fields {
            return Err(format!("Expect {fields} fields but have {}", record.len()));
        }
        let selected = self.csv.select(record).map_err(|column| format!("there is no column {column}: the row has {fields}"))?;
        let completed = self.csv.completed(selected)?;
        completed.deserialize(self.header.as_ref()).map_err(|error| match error.kind() {
            ErrorKind::Deserialize { err, .. } => match err.field() {
                Some(field) => {
                    let text = String::from_utf8_lossy(completed.get(field as usize).unwrap_or_default()).into_owned();
                    format!("Field {field} is not valid: {text:?}: {}", err.kind())
                }
                None => err.to_string(),
            },
            _ => error.to_string(),
        })
    }
}

impl<T: DeserializeOwned> Iterator for Rows<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let mut record = ByteRecord::new();
        match self.from.as_mut()?.read_byte_record(&mut record) {
            Ok(false) => {
                self.from = None;
                None
            }
            Ok(true) => {
                let row = self.row(&record);
                let number = self.read;
                self.read += 1;
                Some(row.map_err(|text| FileError::new(&self.path, format!("record {number}: {text}")).into()))
            }
            Err(error) => {
                self.from = None;
                Some(Err(FileError::new(&self.path, error.to_string()).into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn rows<T: DeserializeOwned>(csv: &Csv, text: &'static str) -> Vec<std::result::Result<T, String>> {
        csv.rows(Path::new("t.csv"), text.as_bytes()).unwrap().map(|row| row.map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn damaged_rows_are_errors_in_their_places() {
        let csv = Csv::new().record_defaults(&[Some("7"), None]).na_value("?");
        let rows = rows::<(i32, f32)>(&csv, "1,2\n,2\n1,?\n1,2,3\nx,1\n5,6.5\n");
        let error = |index: usize| rows[index].as_ref().unwrap_err().clone();
        assert_eq!((&rows[0], &rows[1], &rows[5]), (&Ok((1, 2.0)), &Ok((7, 2.0)), &Ok((5, 6.5))));
        assert_eq!(error(2), "t.csv: record 2: Field 1 is required but missing");
        assert_eq!(error(3), "t.csv: record 3: Expect 2 fields but have 3");
        assert_eq!(error(4), "t.csv: record 4: Field 0 is not valid: \"x\": invalid digit found in string");
        assert_eq!(rows.len(), 6);
    }

    #[test]
    fn columns_by_number_and_name() {
        let csv = Csv::new().header(true).field_delim(b';').select_cols(&[2, 0]);
        assert_eq!(rows::<(String, u8)>(&csv, "a;b;c\n1;2;x;\n1;2;\"y;\"\n")[1], Ok(("y;".into(), 1)));
        let named = rows::<BTreeMap<String, f32>>(&csv, "a;b;c\n1;2;3\n");
        assert_eq!(named, [Ok(BTreeMap::from([("c".into(), 3.0), ("a".into(), 1.0)]))]);
        let error = rows::<u8>(&csv.clone().select_cols(&[3]), "a;b\n1;2\n")[0].clone().unwrap_err();
        assert!(error.contains("there is no column 3: the row has 2"), "{error}");
        assert_eq!(rows::<String>(&Csv::new().use_quote_delim(false), "\"a\"\n"), [Ok("\"a\"".into())]);
    }
}
