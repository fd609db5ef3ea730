//! The command `gradlet inspect`.

use crate::firmware::{Cpu, c_file, write_c};
use crate::measure::Measure;
use crate::print;
use anyhow::{Result, bail};
use clap::Args;
use gradlet::artifact::describe::{Description, SignatureInfo};
use gradlet::artifact::inspect;
use gradlet::io::{FileError, write_whole};
use std::path::PathBuf;

/// Show the signatures, ops, shapes, sizes in flash and RAM, memory peaks and costs of an artifact
///
/// In the list of instructions, `f32[1,10]@64` is a tensor at byte 64 of the scratch memory. The instructions of a branch or loop
/// are indented below it.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("for a processor").args(["measure", "rust"]).multiple(true)))]
#[command(
    after_help = "Examples:\n  gradlet inspect cnn.grdl --signature train --svg arena.svg\n  gradlet inspect model.grdl --rust model.rs\n  \
                  gradlet inspect kws.grdl --measure --cpu cortex-m55"
)]
pub struct Inspect {
    /// The artifact
    file: PathBuf,
    /// Show only this signature
    #[arg(long, value_name = "NAME")]
    signature: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Also draw the arena over time, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also write the firmware's kernels, arena sizes, names, indices and shapes, of all signatures, as Rust
    #[arg(long, value_name = "FILE")]
    rust: Option<PathBuf>,
    /// Processor of the firmware: `--rust` names its kernels, and `--measure` runs on it, or on a cortex-m4 if it is `any`
    #[arg(long, value_enum, default_value_t, requires = "for a processor")]
    cpu: Cpu,
    /// Also write them and the artifact as C: a source file whose name ends with .c, and the header beside it
    #[arg(long, value_name = "FILE", value_parser = c_file)]
    c: Option<PathBuf>,
    #[command(flatten)]
    measure: Measure,
}

impl Inspect {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let bytes = std::fs::read(&self.file).map_err(|error| FileError::io(&self.file, error))?;
        let mut description = Description::read(&bytes).map_err(|error| FileError::model(&self.file, error))?;
        if let Some(name) = &self.signature {
            if !description.signatures.iter().any(|signature| signature.name == *name) {
                bail!(FileError::new(&self.file, unknown_signature(&description, name)));
            }
            description.signatures.retain(|signature| signature.name == *name);
        }
        let measured = self.measure.run(self.cpu, &bytes, &description, quiet)?;
        if let Some(path) = &self.svg {
            let signatures: Vec<&SignatureInfo> = description.signatures.iter().collect();
            write_whole(path, inspect::svg(&description, &signatures, &measured).as_bytes())?;
        }
        if let Some(path) = &self.rust {
            let source = self.cpu.source(&bytes, "gradlet inspect").map_err(|error| FileError::model(&self.file, error))?;
            write_whole(path, source.as_bytes())?;
        }
        if let Some(path) = &self.c {
            write_c(path, &bytes, "gradlet inspect")?;
        }
        match (quiet, self.json) {
            (true, _) => Ok(()),
            (false, true) => print(&format!("{:#}\n", inspect::json(&description, &measured))),
            (false, false) => print(&(inspect::text(&description) + &inspect::costs(&description, &measured))),
        }
    }
}

/// Formats an error such as `there is no signature "x"; the artifact has infer, train`.
fn unknown_signature(description: &Description, name: &str) -> String {
    let names: Vec<&str> = description.signatures.iter().map(|signature| signature.name.as_str()).collect();
    format!("there is no signature {name:?}; the artifact has {}", names.join(", "))
}
