//! The steps of `cargo xtask test`.

use crate::log::Log;
use crate::{names, packages};
use anyhow::{Context, Result, ensure};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::boards::{self, M4F};
use xtask::jetson::{self, Jetson};
use xtask::setup::{self, HEAP, NO_HEAP, SMALL, Toolchain};
use xtask::shell::{answer, cargo, root};

/// Sources that `cargo xtask proto` generates.
const GENERATED: &str = "std-host/src/formats/proto";
/// Templates of `gradlet new`.
const TEMPLATES: &str = "cli/templates";

/// Settings of the steps.
pub struct Options {
    /// True if each fuzz target runs for a minute, and the tests with tensors of 5 GiB run too.
    pub all: bool,
}

/// A step of the tests.
pub struct Step {
    /// Name of the step.
    pub name: &'static str,
    /// True if the step runs the tools.
    pub needs_tools: bool,
    /// Function that runs the step. Its error is the reason of a failure.
    pub run: fn(&Options, &mut Log) -> Result<()>,
}

const fn step(name: &'static str, run: fn(&Options, &mut Log) -> Result<()>) -> Step {
    Step { name, needs_tools: false, run }
}

const fn tool(name: &'static str, run: fn(&Options, &mut Log) -> Result<()>) -> Step {
    Step { name, needs_tools: true, run }
}

/// Name of the step that builds tests and tools, so that the other steps only run them.
pub const BUILD: &str = "build";

/// Arguments of the cargo command that builds only the programs and libraries that steps use, with the combined features of all packages.
pub const BINARIES: [&str; 4] = ["build", "--workspace", "--lib", "--bins"];

/// Returns the command that builds the documentation of all packages, with their combined features.
pub fn docs() -> Command {
    let mut command = cargo();
    command.args(["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// The features of the library.
const FEATURES: [&str; 6] = ["csv", "cuda", "image", "ndarray", "npz", "tflite"];

/// The first steps. They run one after another.
pub static FIRST: [Step; 2] =
    [step("format", |_, log| format(log)), step(BUILD, |_, log| log.run(cargo().args(BINARIES).args(["--tests", "--examples"])))];

/// Three chains of steps, which run in parallel. No chain needs the results of another, and Chromium and QEMU leave a core idle.
pub static CHAINS: [&[Step]; 3] = [&HOST, &OTHERS, &DEVICES];

static HOST: [Step; 8] = [
    step("tests", tests),
    // No step of the other chains builds its firmware.
    tool("golden vectors", |_, log| golden(log)),
    step("lints", |_, log| log.run(cargo().args(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]))),
    tool("messages", |_, log| log.run(built("gradlet-proto").arg("--check"))),
    step("docs", |_, log| log.run(&mut docs())),
    step("public names", |_, log| log.run(&mut docs()).and_then(|()| names::check())),
    step("oldest Rust", |_, log| oldest_rust(log)),
    step("TensorFlow, both ways", |_, log| log.run(&mut ignored("tensorflow::")?)),
];

static OTHERS: [Step; 6] = [
    step("a Jetson's CPU", |_, log| on_a_jetson(log)),
    tool("TensorBoard, in Chromium", |_, log| tensorboard(log)),
    tool("PTX", |_, log| ptx(log)),
    tool("CUDA, on a real GPU", |_, log| cuda(log)),
    step("features", |_, log| features(log)),
    step("packages", |_, log| packages::check(log)),
];

static DEVICES: [Step; 17] = [
    step("core with alloc, without atomics", |_, log| without_atomics(log)),
    step("firmware lints", |_, log| firmware_lints(log)),
    tool("firmware harness", |_, log| check("harness", log)),
    tool("the device's bits", |_, log| check("bits-mlp", log)),
    tool("the device's bits, in loops", |_, log| check("bits-lstm", log)),
    tool("the device's bits, op by op", |_, log| check("bits-eager", log)),
    tool("the device's bits, through restarts", |_, log| check("bits-restart", log)),
    tool("the device's bits, in slices", |_, log| check("slices", log)),
    tool("the device, with several models", |_, log| check("models", log)),
    tool("kernels for Helium", |_, log| check("helium", log)),
    tool("the device, hostile runs", |_, log| check("hostile", log)),
    tool("the device's telemetry", |_, log| check("telemetry", log)),
    tool("every processor's bits", |_, log| check("bits-targets", log)),
    // It shares libraries with the steps before it.
    tool("firmware projects", |_, log| check("projects", log)),
    tool("the C API", |_, log| check("c", log)),
    tool("the report before flashing", |_, log| check("measure", log)),
    tool("sizes", |_, log| check("size", log)),
];

fn format(log: &mut Log) -> Result<()> {
    let mut sources = Vec::new();
    rust_files(&root(), &mut sources)?;
    log.run(Command::new("rustfmt").args(["--check", "--edition", "2024", "--config-path"]).arg(root()).args(sources))
}

/// Adds every `.rs` file below `folder` that is not generated to `found`, whether a module includes it or not. Leaves out the templates of
/// projects, which have the settings of a user: the step "firmware projects" checks them.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let skipped = name.starts_with('.') || name == "target" || path.ends_with(GENERATED) || path.ends_with(TEMPLATES);
        if path.is_dir() && !skipped {
            rust_files(&path, found)?;
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn tests(options: &Options, log: &mut Log) -> Result<()> {
    let mut command = cargo();
    if options.all {
        command.env("GRADLET_CAMPAIGN", "all");
        log.run(cargo().args(["test", "--workspace", "--test", "suite", "--", "--ignored", "large::", "--test-threads=1"]))?;
    }
    // The step "golden vectors" runs these cases, and also on the Cortex-M.
    command.args(["test", "--workspace", "--", "--skip", "golden::golden_vectors"]);
    // The handbook's programs are for a machine without a GPU.
    log.run(command.env("CUDA_VISIBLE_DEVICES", ""))
}

/// Checks that the library compiles with each of its features alone. The other steps build it with all of them.
fn features(log: &mut Log) -> Result<()> {
    FEATURES.iter().try_for_each(|feature| log.run(cargo().args(["check", "--package", "gradlet", "--lib", "--features", feature])))
}

/// Checks that the `rust-version` in Cargo.toml is not newer than this compiler. If rustup has that version, checks the workspace with it.
fn oldest_rust(log: &mut Log) -> Result<()> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let stated = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).context("Cargo.toml has no rust-version")?;
    let stated = stated.trim_matches('"');
    let running = answer("rustc", &["--version"]).context("cannot run rustc")?;
    let running = running.split(' ').nth(1).unwrap_or_default();
    ensure!(minor(stated) <= minor(running), "the rust-version in Cargo.toml is {stated}, but this compiler is only {running}");
    let toolchains = answer("rustup", &["toolchain", "list"]).unwrap_or_default();
    let is_stated = |name: &&str| name.starts_with(&format!("{stated}-")) || name.starts_with(&format!("{stated}."));
    if let Some(toolchain) = toolchains.split_whitespace().find(is_stated) {
        let mut check = Command::new("rustup");
        check.args(["run", toolchain, "cargo", "check", "--workspace", "--target-dir", "target/oldest"]).current_dir(root());
        return log.run(check.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN"));
    }
    log.say(&format!("Rust {stated} is not installed, so only the version number was checked (this compiler is {running})"));
    Ok(())
}

fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

/// Checks that TensorBoard reads and shows gradlet's files. `GRADLET_PYTHON` names a Python that has TensorBoard,
/// `GRADLET_CHROMIUM` a browser.
fn tensorboard(log: &mut Log) -> Result<()> {
    let chromium = env::var_os("GRADLET_CHROMIUM").map_or_else(setup::install_chromium, |path| Ok(path.into()))?;
    let learning = built("gradlet-tools").args(["check", "learning"]).output()?;
    ensure!(learning.status.success(), "{}", String::from_utf8_lossy(&learning.stderr));
    let device = String::from_utf8_lossy(&learning.stdout).trim_end().to_string();
    // One test at a time: several pages together would be too slow.
    let mut command = ignored("tensorboard::")?;
    command.arg("--test-threads=1").envs([("GRADLET_CHROMIUM", chromium), ("GRADLET_DEVICE", device.into())]);
    log.run(&mut command)?;
    log.say(&format!("screenshots of the pages: {}", root().join("target/tensorboard").display()));
    Ok(())
}

/// Runs the golden vectors, and the models on a Cortex-M55 too.
fn golden(log: &mut Log) -> Result<()> {
    log.run(built("golden").arg("check-golden"))?;
    let models = ["models", "models_int16", "tflm", "tinyml"].map(|folder| root().join("tests/fixtures").join(folder));
    log.run(built("golden").args(["golden", "--runtime", "cortex-m", "--target", "m55"]).args(models))
}

/// Compiles the GPU's kernels, and compares them with the committed ones. NVIDIA publishes its compilers for Linux.
fn ptx(log: &mut Log) -> Result<()> {
    if cfg!(not(target_os = "linux")) {
        log.say("skipped: NVIDIA's compilers need Linux");
        return Ok(());
    }
    log.run(built("gradlet-tools").args(["ptx", "--check"]))?;
    // The assembler also takes what gradlet writes on the device.
    let assembler = setup::install_cuda_compilers()?.ptxas_12;
    log.run(cargo().args(["test", "--workspace", "--lib", "--", "lower::", "ptx::"]).env("GRADLET_PTXAS", assembler))
}

/// Runs the golden vectors and the tests of GPUs on the GPU of this machine, under `compute-sanitizer` where it is installed.
fn cuda(log: &mut Log) -> Result<()> {
    let libraries = answer("ldconfig", &["-p"]).unwrap_or_default();
    if !libraries.contains("libcuda.so.1") {
        log.say("skipped: this machine has no NVIDIA driver; the other tests emulate one");
        return Ok(());
    }
    let golden = built("golden");
    let mut command = match answer("compute-sanitizer", &["--version"]) {
        Some(_) => {
            let mut command = Command::new("compute-sanitizer");
            command.args(["--error-exitcode", "1"]).arg(golden.get_program()).current_dir(root());
            command
        }
        None => golden,
    };
    log.run(command.args(["golden", "--runtime", "cuda"]).env("GRADLET_GPU", "real"))?;
    let modules = ["control", "groups", "models", "profile", "training"].map(|module| format!("cuda::{module}"));
    log.run(cargo().args(["test", "--workspace", "--test", "suite", "--"]).args(modules).env("GRADLET_GPU", "real"))
}

/// Returns the command that runs the tests in `module` that need Python. `GRADLET_PYTHON` names a Python that has TensorFlow.
fn ignored(module: &str) -> Result<Command> {
    let python = env::var_os("GRADLET_PYTHON").map_or_else(setup::install_tensorflow, |path| Ok(path.into()))?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--test", "suite", "--", "--ignored", module]).env("GRADLET_PYTHON", python);
    command.env_remove(setup::KEEPS_NOTHING);
    Ok(command)
}

/// Returns the command for a program that the step `build` built. It is in the same folder as this program.
fn built(name: &str) -> Command {
    let own = env::current_exe().unwrap_or_default();
    let mut command = Command::new(own.with_file_name(format!("{name}{}", env::consts::EXE_SUFFIX)));
    command.current_dir(root());
    command
}

fn check(which: &str, log: &mut Log) -> Result<()> {
    log.run(built("gradlet-tools").args(["check", which]))
}

/// Checks that the core with `alloc` builds for processors without atomic read-modify-write instructions, such as the Cortex-M0. Firmwares
/// build the core without `alloc`.
fn without_atomics(log: &mut Log) -> Result<()> {
    match Toolchain::with_target(SMALL) {
        Some(toolchain) => {
            let mut check = toolchain.cargo_for(SMALL, &boards::builds(), Some(HEAP), "check");
            // The step "a Jetson's CPU" may hold the lock of the debug builds. A check needs no optimised library.
            check.args(["--release", "--config", "profile.release.opt-level=0"]);
            log.run(check.args(["--package", "gradlet-core", "--features", "alloc defmt"]))
        }
        None => {
            log.say(&format!("skipped: there is no Rust for {SMALL}; run `rustup target add {SMALL}`"));
            Ok(())
        }
    }
}

/// Runs clippy on the firmwares. Debian's Rust has no clippy; the steps that build the firmwares have the compiler's lints.
fn firmware_lints(log: &mut Log) -> Result<()> {
    let m55 = boards::TARGETS.iter().filter(|target| target.name == "m55");
    let m55 = m55.map(|m55| (m55, &["--bin", "helium", "--no-default-features", "--features", "mps3-an547"][..]));
    let m4f = [(&M4F, &["--bins"][..]), (&M4F, &["--bin", "eager", "--features", "alloc"])];
    for (target, which) in m4f.into_iter().chain(m55) {
        let Some(toolchain @ Toolchain::Active) = Toolchain::with_target(target.triple) else {
            log.say(&format!("skipped: there is no clippy for {0}; run `rustup target add {0}`", target.triple));
            continue;
        };
        let mut clippy = toolchain.cargo(target, NO_HEAP, "clippy");
        clippy.args(["--release", "--locked"]).args(which).env("GRADLET_FIRMWARE_DIR", boards::no_model()?);
        log.run(&mut clippy)?;
    }
    Ok(())
}

/// Runs the tests of kernels and ops on a Jetson's CPU, in QEMU, and those of vectors of integers also on an older one. Then runs the
/// example there, on an emulated GPU, and on this machine: the suite compares the results.
fn on_a_jetson(log: &mut Log) -> Result<()> {
    let jetson = match Jetson::ensure()? {
        Ok(jetson) => jetson,
        Err(why) => {
            log.say(&format!("skipped: {why}"));
            return Ok(());
        }
    };
    let jetson = |subcommand: &str, runner: &str| {
        let mut command = jetson.cargo(runner, subcommand);
        // Without optimisation, the emulator is compiled in a fourth of the time, and the example still runs in half a minute.
        command.args(["--config", "profile.dev.package.gradlet-cuda-emulator.opt-level=0"]);
        command
    };
    // The dependencies have the same features in all commands, so that each library is built once.
    let tests = ["--package", "gradlet-core", "--package", "gradlet-cpu", "--package", "gradlet-cuda", "--lib", "--"];
    log.run(jetson("test", jetson::RUNNER).args(tests).args(["kernels::", "ops::", "simd::"]))?;
    log.run(jetson("test", jetson::FIRST_RUNNER).args(tests).args(["kernels::quantized::", "simd::"]))?;
    let packages = ["--package", "gradlet", "--package", "gradlet-cuda-emulator", "--features", "gradlet/cuda"];
    log.run(jetson("build", jetson::RUNNER).args(packages).args(["--lib", "--example", "jetson"]))?;
    let both = ["--", "--ignored", "--exact", "cuda::jetson::on_a_jetsons_cpu"];
    log.run(cargo().args(["test", "--workspace", "--test", "suite"]).args(both))
}
