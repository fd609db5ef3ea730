//! The folders that firmwares are built around: an exported model, its kernel list, its data.

use crate::shell;
use anyhow::{Result, ensure};
use std::fs;
use std::path::PathBuf;

/// The folder of model `name` (`mlp`, `book`, `demo`, `dispatch`), exported anew.
pub fn export(name: &str) -> Result<PathBuf> {
    let folder = shell::root().join("target/firmware").join(name);
    ensure!(folder.join("model.grdl").exists(), "there is no exporter yet for {}", folder.display());
    Ok(folder)
}

/// A folder without a model, which every firmware compiles with: for lints.
pub fn none() -> Result<PathBuf> {
    let folder = shell::root().join("target/firmware/none");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("model.grdl"), [])?;
    fs::write(folder.join("model.rs"), "pub static KERNELS: &[&gradlet_core::Kernel] = &[];\npub const ARENA_BYTES: usize = 16;\n")?;
    fs::write(folder.join("digits.bin"), [0; 8])?;
    Ok(folder)
}
