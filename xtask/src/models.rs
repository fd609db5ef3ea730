//! The folders that firmwares are built around: an exported model, its kernel list, its data.

use crate::shell;
use anyhow::{Context, Result};
use gradlet::export::{self, Options};
use gradlet::{Artifact, Eager, Function, ModelSpec, Scope, Tensor, firmware, portable_cpu};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The learning rate of the exported training steps: Keras's default for SGD.
pub const LEARNING_RATE: f32 = 0.01;

/// The folder of firmware `name`'s model (`mlp`, `book`, `dispatch`), exported anew.
pub fn export(name: &str) -> Result<PathBuf> {
    let artifact = match name {
        "mlp" => mlp("mlp:64-32-10")?,
        "book" => mlp("mlp:784-100-10")?,
        "dispatch" => chains()?,
        _ => anyhow::bail!("firmware {name} has no model of its own: give one with --model"),
    };
    write(name, &artifact)
}

/// Writes `model.grdl` and `model.rs` into the folder of firmware `name`.
pub fn write(name: &str, artifact: &[u8]) -> Result<PathBuf> {
    let folder = folder(name)?;
    fs::write(folder.join("model.grdl"), artifact)?;
    fs::write(folder.join("model.rs"), firmware::source(artifact, "cargo xtask")?)?;
    Ok(folder)
}

fn folder(name: &str) -> Result<PathBuf> {
    let folder = shell::root().join("target/firmware").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// An untrained MLP with `infer` and `train`.
fn mlp(spec: &str) -> Result<Vec<u8>> {
    let scope = Eager::new(&portable_cpu());
    let spec: ModelSpec = spec.parse()?;
    let model = Arc::new(spec.build(&scope)?);
    let signatures = ["infer", "train"].map(String::from).into();
    let options = Options { batch: 1, learning_rate: LEARNING_RATE, signatures };
    Ok(export::artifact(&scope, &model, &spec, &options)?.to_vec())
}

/// Chains of additions on one element: `long` has 64 more of them than `short`.
fn chains() -> Result<Vec<u8>> {
    let scope = Eager::new(&portable_cpu());
    let one = Tensor::full(&scope.device(), 1.0f32, &[1])?;
    let mut artifact = Artifact::new();
    for (name, length) in [("short", 4), ("long", 68)] {
        let constant = one.clone();
        let chain = Function::new(move |_: &dyn Scope, x: Tensor| (0..length).try_fold(x, |x, _| x.add(&constant)));
        artifact.signature(name, &*chain.concrete(&scope, &one)?, &["x"], &["y"])?;
    }
    Ok(artifact.to_bytes()?.to_vec())
}

/// A folder without a model, which every firmware compiles with: for lints.
pub fn none() -> Result<PathBuf> {
    let folder = folder("none")?;
    fs::write(folder.join("model.grdl"), [])?;
    fs::write(folder.join("model.rs"), "pub static KERNELS: &[&gradlet_core::Kernel] = &[];\npub const ARENA_BYTES: usize = 16;\n")?;
    fs::write(folder.join("digits.bin"), [0; 8])?;
    Ok(folder)
}

/// Writes digits as the firmware reads them: two counts, the labels, the pictures; those to train on first.
pub fn write_digits(path: &Path, train: &gradlet::Digits, test: &gradlet::Digits) -> Result<()> {
    let counts = [train.len() as u32, test.len() as u32].map(u32::to_le_bytes).concat();
    let bytes = [&counts, &train.labels, &test.labels, &train.images, &test.images].map(|part| &part[..]).concat();
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
