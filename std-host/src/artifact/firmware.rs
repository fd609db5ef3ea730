//! What a firmware needs beside the artifact: the list of its kernels, and the size of its arena.

use gradlet_core::artifact::describe::Description;
use gradlet_core::device::AlignedBytes;
use gradlet_core::{DType, Program, Result, ops};
use std::fmt::Write;

/// The line that adds the kernel of `op` for `dtype` to a firmware's table.
///
/// ```
/// assert_eq!(gradlet::artifact::firmware::kernel("dense", gradlet::DType::F32), "&gradlet_core::ops::dense::F32");
/// ```
pub fn kernel(op: &str, dtype: DType) -> String {
    format!("&gradlet_core::ops::{op}::{}", dtype.name().to_uppercase())
}

/// The bytes of arena that `signatures` of the artifact need if they are loaded together.
///
/// Fails as [`Program::load`] does.
pub fn arena_bytes(artifact: &[u8], signatures: &[&str]) -> Result<usize> {
    let artifact = AlignedBytes::from(artifact);
    Ok(Program::load(&artifact, ops::KERNELS, signatures)?.arena_bytes())
}

/// A Rust source file for a firmware that runs the artifact: `KERNELS` in the artifact's order, `ARENA_BYTES` for all of its
/// signatures loaded together, and `{SIGNATURE}_ARENA_BYTES` for each alone. `made_by` is put into its first comment.
///
/// Fails where the artifact is damaged, or names ops that this gradlet does not know.
pub fn source(artifact: &[u8], made_by: &str) -> Result<String> {
    let description = Description::read(artifact)?;
    let names: Vec<&str> = description.signatures.iter().map(|signature| signature.name.as_str()).collect();
    let mut source = format!("// Made by `{}`: make it anew with each export.\n\n", made_by.replace(['\n', '\r'], " "));
    source += "/// The kernels that the artifact names, in its order, so that each is found at once.\n";
    source += "#[rustfmt::skip]\n";
    source += "pub static KERNELS: &[&gradlet_core::Kernel] = &[\n";
    for (op, dtype) in &description.kernels {
        let _ = writeln!(source, "    {},", kernel(op, *dtype));
    }
    source += "];\n";
    let mut constant = |name: &str, doc: String, bytes: usize| {
        let _ = write!(source, "\n/// Bytes of arena for {doc}.\n#[allow(dead_code)]\npub const {name}: usize = {bytes};\n");
    };
    constant("ARENA_BYTES", "all signatures, loaded together".into(), arena_bytes(artifact, &names)?);
    for name in names {
        let identifier: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
        constant(&format!("{identifier}_ARENA_BYTES"), format!("`{name}` alone"), arena_bytes(artifact, &[name])?);
    }
    Ok(source)
}
