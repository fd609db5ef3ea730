//! Files: read and written whole, and found by patterns. As `tf.io`.

mod files;

pub use files::{list_files, matching_files, read_file, write_file};
