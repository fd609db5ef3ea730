//! Datasets of files.

use anyhow::{Result, bail};
use serde_json::Value as Json;
use std::path::Path;

/// A program that reads a file of the folder.
pub fn one(folder: &Path, name: &str, wanted: &Json) -> Result<()> {
    bail!("{name} of {}: {wanted}", folder.display())
}
