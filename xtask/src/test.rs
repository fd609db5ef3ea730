//! All tests, in order, until one fails.

use crate::setup::{self, TARGET, Toolchain};
use crate::shell::{self, answer, cargo};
use crate::{bits, demo, firmware, golden, models, proto, size, telemetry};
use anyhow::{Context, Result, bail, ensure};
use std::process::Command;
use std::time::{Duration, Instant};

type Step = (&'static str, fn(&Toolchain) -> Result<()>);

const STEPS: [Step; 18] = [
    ("format", |_| format()),
    ("lints", |_| shell::run(cargo().args(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]))),
    ("messages", |_| proto::check()),
    ("docs", |_| shell::run(cargo().args(["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings"))),
    ("oldest Rust", |_| oldest_rust()),
    ("tests", |_| shell::run(cargo().args(["test", "--workspace", "--profile", "quick"]))),
    ("TensorFlow, both ways", |_| tensorflow()),
    ("TensorBoard, in Chromium", tensorboard),
    ("core without alloc, for the device", |toolchain| shell::run(toolchain.cargo("build").args(["--quiet", "--package", "gradlet-core"]))),
    ("firmware lints", firmware_lints),
    ("firmware harness", firmware_harness),
    ("golden vectors", |_| golden::check()),
    ("the device's bits", |toolchain| bits::check(toolchain, "mlp")),
    ("the device's bits, in loops", |toolchain| bits::check(toolchain, "lstm")),
    ("the device's bits, op by op", bits::check_eager),
    ("the device's bits, through restarts", bits::check_restart),
    ("the device's telemetry", telemetry::check),
    ("sizes", |_| size::check()),
];

/// `cargo xtask test`: the steps whose names contain one of `wanted`, or all.
pub fn run(wanted: &[String]) -> Result<()> {
    let toolchain = setup::ensure()?;
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.to_lowercase().contains(&part.to_lowercase()));
    let steps: Vec<&Step> = STEPS.iter().filter(|(name, _)| is_wanted(name)).collect();
    if steps.is_empty() {
        bail!("no step has {wanted:?} in its name; there are {:?}", STEPS.map(|(name, _)| name));
    }
    for (passed, (name, step)) in steps.iter().enumerate() {
        println!("\n== {name}");
        let start = Instant::now();
        if let Err(error) = step(&toolchain) {
            println!("\n{passed} passed, 1 failed");
            return Err(error.context(format!("step \"{name}\"")));
        }
        println!("== {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
    }
    println!("\n{} passed, 0 failed", steps.len());
    Ok(())
}

fn format() -> Result<()> {
    shell::run(cargo().args(["fmt", "--all", "--check"]))?;
    shell::run(cargo().args(["fmt", "--package", "mps2-an386", "--check"]).current_dir(shell::root().join("boards")))
}

/// The stated oldest Rust is not newer than this one; and it builds all, where rustup has it.
fn oldest_rust() -> Result<()> {
    let manifest = std::fs::read_to_string(shell::root().join("Cargo.toml"))?;
    let stated = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).context("Cargo.toml states no rust-version")?;
    let stated = stated.trim_matches('"');
    let running = answer("rustc", &["--version"]).context("no rustc")?;
    let running = running.split(' ').nth(1).unwrap_or_default();
    ensure!(minor(stated) <= minor(running), "Cargo.toml states Rust {stated}, but this is {running}");
    let toolchains = answer("rustup", &["toolchain", "list"]).unwrap_or_default();
    if toolchains.lines().any(|name| name.starts_with(&format!("{stated}-")) || name.starts_with(&format!("{stated}."))) {
        let mut check = Command::new("rustup");
        check.args(["run", stated, "cargo", "check", "--workspace"]).current_dir(shell::root());
        return shell::run(check.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN"));
    }
    println!("Rust {stated} is not installed, so only the number was checked (this is {running})");
    Ok(())
}

/// What gradlet writes, TensorFlow reads, and the other way round. `GRADLET_PYTHON` names a Python that has TensorFlow.
fn tensorflow() -> Result<()> {
    shell::run(&mut ignored("tensorflow")?)
}

/// What gradlet writes, TensorBoard reads and shows. `GRADLET_PYTHON` names a Python that has TensorBoard, `GRADLET_CHROMIUM` a browser.
fn tensorboard(toolchain: &Toolchain) -> Result<()> {
    let chromium = std::env::var_os("GRADLET_CHROMIUM").map_or_else(setup::install_chromium, |path| Ok(path.into()))?;
    // A page is slow enough alone.
    let mut command = ignored("tensorboard")?;
    command.arg("--test-threads=1").envs([("GRADLET_CHROMIUM", chromium), ("GRADLET_DEVICE", demo::learning(toolchain)?.into())]);
    shell::run(&mut command)?;
    println!("pictures of the pages: {}", shell::root().join("target/tensorboard").display());
    Ok(())
}

/// The tests of a target that need Python.
fn ignored(target: &str) -> Result<Command> {
    let python = std::env::var_os("GRADLET_PYTHON").map_or_else(setup::install_tensorflow, |path| Ok(path.into()))?;
    let mut command = cargo();
    command.args(["test", "--package", "gradlet-tests", "--profile", "quick", "--test", target, "--", "--ignored"]);
    command.env("GRADLET_PYTHON", python);
    Ok(command)
}

fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

fn firmware_lints(toolchain: &Toolchain) -> Result<()> {
    for which in [&["--bins"][..], &["--bin", "eager", "--features", "alloc"]] {
        let mut command = match toolchain {
            // Debian's Rust brings no clippy; the compiler's own lints remain.
            Toolchain::Debian => toolchain.cargo("check"),
            Toolchain::Active => toolchain.cargo("clippy"),
        };
        command.args(["--release", "--quiet", "--locked"]).args(which).env("GRADLET_FIRMWARE_DIR", models::none()?);
        shell::run(&mut command)?;
    }
    Ok(())
}

/// Every firmware builds, for the target only; the counter counts a loop of known length.
fn firmware_harness(toolchain: &Toolchain) -> Result<()> {
    let none = models::none()?;
    for name in firmware::ALL {
        firmware::build(toolchain, name, Some(&none)).with_context(|| format!("for {TARGET}"))?;
    }
    let elf = firmware::build(toolchain, "bare", None)?;
    let run = firmware::run(&elf, &none, &[], Duration::from_secs(60))?.ok()?;
    // 2,001 turns of a loop of two instructions.
    let counted = run.number("instructions")?;
    ensure!((4_000..4_010).contains(&counted), "the counter gave {counted} instructions instead of 4,002");
    Ok(())
}
