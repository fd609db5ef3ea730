//! File input and output, equivalent to parts of `tf.io` and `tf.data`: whole files, file name patterns, and datasets of lines, records and
//! rows.

#[cfg(feature = "csv")]
mod csv;
mod files;
mod lines;
mod records;

#[cfg(feature = "csv")]
pub use csv::{Csv, Rows};
pub use files::{list_files, matching_files, read_file, write_file};
pub use lines::FixedLength;
