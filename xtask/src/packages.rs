//! The step `packages`: packs the crates for a registry, and checks the packed sources.
//!
//! `cargo package` would build each package with all crates that it depends on, once more. Here the packed sources form a workspace of
//! their own, which uses the crates that other steps have checked.

use crate::log::Log;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use xtask::shell::{cargo, root};

/// The crates for a registry.
const PUBLISHED: [&str; 7] = ["gradlet-derive", "gradlet-core", "gradlet-helium", "gradlet-cpu", "gradlet-cuda", "gradlet", "gradlet-cli"];

/// Packs the crates, and checks them: the library without features, and the command, which has all.
pub fn check(log: &mut Log) -> Result<()> {
    let selected = PUBLISHED.iter().flat_map(|name| ["--package", name]);
    log.run(cargo().args(["package", "--allow-dirty", "--no-verify"]).args(selected))?;
    let folder = root().join("target/package/workspace");
    // Files of an earlier run could hide that one is missing.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    PUBLISHED.iter().try_for_each(|name| unpack(name, &folder))?;
    fs::write(folder.join("Cargo.toml"), manifest(&fs::read_to_string(root().join("Cargo.toml"))?)?)?;
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    for name in ["gradlet", "gradlet-helium", "gradlet-cli"] {
        let mut check = cargo();
        check.args(["check", "--package", name, "--target-dir"]).arg(root().join("target")).current_dir(&folder);
        log.run(&mut check)?;
    }
    Ok(())
}

/// Extracts the package of the crate `name` to a folder of that name.
fn unpack(name: &str, folder: &Path) -> Result<()> {
    let packages = root().join("target/package");
    let archive = packages.join(format!("{name}-{}.crate", env!("CARGO_PKG_VERSION")));
    let output = Command::new("tar").arg("-xzmf").arg(&archive).arg("-C").arg(folder).output().context("cannot start tar")?;
    ensure!(output.status.success(), "{}: {}", archive.display(), String::from_utf8_lossy(&output.stderr));
    Ok(fs::rename(folder.join(format!("{name}-{}", env!("CARGO_PKG_VERSION"))), folder.join(name))?)
}

/// Returns the manifest of a workspace whose members replace the crates of the registry. It has the profiles of `own`, the manifest of
/// gradlet's workspace, so that cargo finds the crates that it has checked with them.
fn manifest(own: &str) -> Result<String> {
    let profiles = own.find("[profile.").map(|start| &own[start..]).context("Cargo.toml has no profiles")?;
    let patches: String = PUBLISHED.iter().map(|name| format!("{name} = {{ path = \"{name}\" }}\n")).collect();
    Ok(format!("[workspace]\nresolver = \"3\"\nmembers = {PUBLISHED:?}\n\n[patch.crates-io]\n{patches}\n{profiles}"))
}
