//! Export of images and audio to files.

use super::values::media;
use anyhow::Result;
use gradlet::io::{FileError, write_whole};
use gradlet::summary::Series;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folder to which images and audio clips are exported.
pub struct Folder {
    path: PathBuf,
    written: BTreeSet<PathBuf>,
}

impl Folder {
    pub fn new(path: &Path) -> Folder {
        Folder { path: path.into(), written: BTreeSet::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of files written.
    pub fn files(&self) -> u64 {
        self.written.len() as u64
    }

    /// Writes the images or audio clips of a series, if it has any.
    pub fn add(&mut self, run: &str, plugin: &str, tag: &str, series: &Series) -> Result<()> {
        for point in &series.points {
            let files = media(plugin, point).unwrap_or_default();
            for (index, bytes) in files.iter().enumerate() {
                let number = if files.len() > 1 { format!("-{index}") } else { String::new() };
                let folder = self.path.join(plain(run)).join(plain(tag));
                std::fs::create_dir_all(&folder).map_err(|error| FileError::io(&folder, error))?;
                let path = self.free(&folder, &format!("{}{number}", point.step), ending(bytes));
                write_whole(&path, bytes)?;
                self.written.insert(path);
            }
        }
        Ok(())
    }

    /// Returns a path in `folder` to which no file was written yet. If the path without a number is taken, because a step occurs
    /// twice, the file name gets the suffix `~1`, `~2` and so on.
    fn free(&self, folder: &Path, name: &str, ending: &str) -> PathBuf {
        let mut path = folder.join(format!("{name}.{ending}"));
        for again in 1.. {
            if !self.written.contains(&path) {
                break;
            }
            path = folder.join(format!("{name}~{again}.{ending}"));
        }
        path
    }
}

/// Converts the name of a run or tag to a valid folder name. Characters other than letters, digits, `.`, `-` and `_` become the
/// hexadecimal values of their bytes, such as `%2f`.
fn plain(name: &str) -> String {
    let dots = name.bytes().all(|byte| byte == b'.');
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || byte == b'.' && !dots;
    match name {
        "." => "root".into(),
        _ => name.bytes().map(|byte| if keeps(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }).collect(),
    }
}

/// Determines the ending of a file name by the first bytes of the file.
fn ending(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => "png",
        [0xff, 0xd8, ..] => "jpg",
        [b'G', b'I', b'F', ..] => "gif",
        [b'R', b'I', b'F', b'F', ..] => "wav",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tag_leads_out_of_the_folder_and_no_two_are_one() {
        assert_eq!(["a/b", "..", "x y", "%2f", "."].map(plain), ["a%2fb", "%2e%2e", "x%20y", "%252f", "root"]);
    }
}
