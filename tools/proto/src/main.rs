//! Generates Rust for the protobuf messages of TensorFlow's formats in `std-host/proto`. The result is committed, so that users need no
//! protobuf compiler.
//!
//! This program does not link gradlet. It therefore also works when the committed Rust does not compile.

use anyhow::{Context, Result, ensure};
use prost_build::{Config, Module};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes the Rust files. With `--check`, fails if a committed file differs from the generated one.
fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("--check") => check(),
        Some(word) => anyhow::bail!("unknown argument {word}: the only option is --check"),
        None => write(),
    }
}

fn write() -> Result<()> {
    for (path, source) in generate()? {
        fs::write(&path, source).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Fails if a committed file differs from the generated one, or if `mod.rs` does not include it.
fn check() -> Result<()> {
    let module = fs::read_to_string(rust().join("mod.rs"))?;
    for (path, source) in generate()? {
        let committed = fs::read_to_string(&path).unwrap_or_default();
        ensure!(committed == source, "{} is out of date: run `cargo xtask proto`", path.display());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ensure!(module.contains(&format!("include!(\"{name}\");")), "mod.rs does not include {name}");
    }
    Ok(())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust() -> PathBuf {
    root().join("std-host/src/formats/proto")
}

/// Generates a Rust file for each `.proto` file. Returns paths and sources.
fn generate() -> Result<Vec<(PathBuf, String)>> {
    let folder = root().join("std-host/proto");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names: Vec<String> = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()?;
    names.retain(|name| name.ends_with(".proto"));
    names.sort();
    let files = protox::compile(&names, [&folder])?;
    // All files are in one protobuf package. A module for each makes a file for each.
    let stem = |name: &str| name.trim_end_matches(".proto").to_string();
    let requests = files.file.into_iter().map(|file| (Module::from_parts([stem(file.name())]), file)).collect();
    let generated = Config::new().btree_map(["."]).bytes(["."]).generate(requests)?;
    let mut sources = Vec::new();
    for name in names {
        let module = Module::from_parts([stem(&name)]);
        let source = generated.get(&module).with_context(|| format!("{name} has no messages"))?;
        let header = format!("// Made by `cargo xtask proto` of proto/{name}; not to be edited.\n");
        sources.push((rust().join(stem(&name) + ".rs"), header + source));
    }
    Ok(sources)
}
