//! Files: read and written whole, found by patterns, and as datasets of lines, records and rows. As `tf.io` and `tf.data`.

#[cfg(feature = "csv")]
mod csv;
mod files;
mod lines;
mod records;

#[cfg(feature = "csv")]
pub use csv::{Csv, Rows};
pub use files::{list_files, matching_files, read_file, write_file};
pub use lines::FixedLength;
