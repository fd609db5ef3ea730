//! Folders for the builds of firmwares.

use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// Returns the folder for the model of firmware `name`, and creates it if it does not exist.
pub fn folder(name: &str) -> Result<PathBuf> {
    let folder = shell::root().join("target/firmware").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Returns a folder with an empty model. Every firmware compiles with it, for lints.
pub fn no_model() -> Result<PathBuf> {
    let folder = folder("none")?;
    fs::write(folder.join("model.grdl"), [])?;
    fs::write(folder.join("model.rs"), "pub static KERNELS: &[&gradlet_core::Kernel] = &[];\npub const ARENA_BYTES: usize = 16;\n")?;
    fs::write(folder.join("digits.bin"), [0; 8])?;
    Ok(folder)
}
