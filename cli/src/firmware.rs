//! Parts of a firmware that runs an artifact: its processor, its dependencies on gradlet's crates, and files of Rust and C.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use gradlet::artifact::{c_source, firmware};
use gradlet::io::{FileError, write_whole};
use std::path::{Path, PathBuf};

/// Processor of a firmware.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Cpu {
    /// Any processor
    #[default]
    Any,
    CortexM0,
    CortexM3,
    CortexM4,
    CortexM7,
    CortexM33,
    /// A Cortex-M52, M55 or M85: the kernels of gradlet-helium for the ops that have one
    CortexM55,
}

impl Cpu {
    /// Returns the source file of Rust for an artifact.
    pub fn source(self, artifact: &[u8], made_by: &str) -> gradlet::Result<String> {
        let cpu = if self == Cpu::CortexM55 { firmware::Cpu::CortexM55 } else { firmware::Cpu::Any };
        firmware::source_for(cpu, artifact, made_by)
    }
}

/// Returns the dependency on gradlet-core, as Cargo.toml has it. The crate is in `folder`, or else in the checkout that this command was
/// built from, or else on crates.io.
pub fn core(folder: Option<&Path>) -> Result<String> {
    dependency("gradlet-core", folder.map(PathBuf::from).or_else(checkout))
}

/// Returns the dependency on gradlet-helium, which is beside [`core`].
pub fn helium(core: Option<&Path>) -> Result<String> {
    dependency("gradlet-helium", core.map(PathBuf::from).or_else(checkout).map(|core| core.join("../helium")))
}

fn checkout() -> Option<PathBuf> {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("core");
    core.join("Cargo.toml").exists().then_some(core)
}

fn dependency(name: &str, folder: Option<PathBuf>) -> Result<String> {
    let Some(folder) = folder else { return Ok(format!("{{ version = \"{}\" }}", env!("CARGO_PKG_VERSION"))) };
    let manifest = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(|error| FileError::io(&manifest, error))?;
    ensure!(text.contains(&format!("name = \"{name}\"")), "{} is not the manifest of {name}", manifest.display());
    Ok(format!("{{ path = {:?} }}", folder.canonicalize()?.display().to_string()))
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
