//! TensorFlow's file format for named tensors, in which checkpoints are stored: `PREFIX.index` and `PREFIX.data-00000-of-00001`.
//!
//! The index is a table of names. An entry has the element type, shape and checksum of a tensor, and the location of its bytes in the
//! data files. This module does not interpret the names. Object-based checkpoints and the older name-based ones both use this format.
//!
//! ```
//! use gradlet::checkpoint::bundle::{BundleReader, BundleWriter};
//! use gradlet::io::proto::DataType;
//!
//! let folder = tempfile::tempdir()?;
//! let prefix = folder.path().join("weights");
//! let mut writer = BundleWriter::create(&prefix)?;
//! writer.tensor("dense/bias", DataType::DtFloat, &[2], bytemuck::cast_slice(&[0.5f32, -0.5]))?;
//! writer.finish()?;
//!
//! let reader = BundleReader::open(&prefix)?;
//! assert_eq!(reader.entry("dense/bias").unwrap().dims(), [2]);
//! assert_eq!(reader.tensor("dense/bias", &gradlet::cpu())?.to_vec::<f32>()?, [0.5, -0.5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod crc;
mod data;
mod entry;
mod items;
mod reader;
mod slices;
mod table;
mod table_writer;
#[cfg(test)]
mod tests;
mod writer;

pub use entry::{Entry, dtype_name, element_bytes};
pub use reader::BundleReader;
pub use slices::{extents, key as slice_key};
pub use table_writer::table;
pub use writer::{BundleWriter, NewTensor};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the path of a checkpoint's index file: the prefix, then `.index`.
pub fn index_path(prefix: &Path) -> PathBuf {
    append(prefix, ".index")
}

/// Returns the path of a data file of a checkpoint. `PREFIX.data-00000-of-00001` is number 0 of 1.
pub fn data_path(prefix: &Path, shard: u32, shards: u32) -> PathBuf {
    append(prefix, &format!(".data-{shard:05}-of-{shards:05}"))
}

/// Appends `ending` to the last component of a path.
pub(super) fn append(prefix: &Path, ending: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_os_string();
    path.push(ending);
    path.into()
}

/// Returns the numbers of data files that appear in the file names of a prefix (`-of-00002`). There is more than one number if a
/// checkpoint was being replaced.
fn shard_counts(prefix: &Path) -> BTreeSet<u32> {
    data_files(prefix).into_iter().map(|(_, shards)| shards).collect()
}

/// Returns all existing data files of a prefix, each with the number of files that its name states.
fn data_files(prefix: &Path) -> Vec<(PathBuf, u32)> {
    let Some(name) = prefix.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let folder = prefix.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let shards = |file: &str| {
        let (shard, shards) = file.strip_prefix(name)?.strip_prefix(".data-")?.split_once("-of-")?;
        let number = |digits: &str| digits.parse::<u32>().ok().filter(|_| digits.len() >= 5);
        number(shard).and(number(shards))
    };
    let files = files.flatten().filter_map(|file| Some((file.path(), shards(file.file_name().to_str()?)?)));
    files.collect()
}
