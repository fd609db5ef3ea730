//! Files of Rust and C for a firmware that runs an artifact.

use anyhow::Result;
use clap::ValueEnum;
use gradlet::artifact::{c_source, firmware};
use gradlet::io::{FileError, write_whole};
use std::path::{Path, PathBuf};

/// Processor whose kernels a file of Rust names.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum Cpu {
    /// Any processor: the kernels of gradlet-core
    #[default]
    Any,
    /// A Cortex-M55 or another processor with Helium: the kernels of gradlet-helium, where it has one
    CortexM55,
}

impl Cpu {
    /// Returns the source file of Rust for an artifact.
    pub fn source(self, artifact: &[u8], made_by: &str) -> gradlet::Result<String> {
        let cpu = match self {
            Cpu::Any => firmware::Cpu::Any,
            Cpu::CortexM55 => firmware::Cpu::CortexM55,
        };
        firmware::source_for(cpu, artifact, made_by)
    }
}

/// Parses the name of a source file of C.
pub fn c_file(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    match path.file_stem() {
        Some(stem) if stem != "gradlet" && path.extension().is_some_and(|extension| extension == "c") => Ok(path),
        _ => Err("it must end with .c, as in model.c; gradlet.c would have the header of the library".into()),
    }
}

/// Writes the source file `path`, and the header beside it.
pub fn write_c(path: &Path, artifact: &[u8], made_by: &str) -> Result<()> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let files = c_source::files(artifact, &name, made_by).map_err(|error| FileError::model(path, error))?;
    write_whole(&path.with_extension("h"), files.header.as_bytes())?;
    Ok(write_whole(path, files.source.as_bytes())?)
}
