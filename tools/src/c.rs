//! Checks the C API: a firmware in C for the Cortex-M4F against the one in Rust, hostile calls, and the library of a host.

use crate::{bits, models};
use anyhow::{Context, Result, bail, ensure};
use gradlet::Artifact;
use gradlet::artifact::c_source;
use gradlet_tools::elf::Elf;
use gradlet_tools::firmware::{self, Firmware};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::boards::{self, M4F};
use xtask::setup::{self, NO_HEAP, Toolchain};
use xtask::shell::{self, answer, root};

const STEPS: u32 = 100;
const LOG: &str = "mlp.out";
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of flash, and thousandths of the instructions of a training step, that a firmware in C may have beyond the one in Rust.
const MORE: [u64; 2] = [1536, 10];

/// Runs all checks. Skips those whose tools are missing, and says which.
pub fn check(toolchain: &Toolchain) -> Result<()> {
    let folder = export()?;
    // The libraries for this machine are beside this program.
    let own = std::env::current_exe()?;
    let library = own.parent().context("this program has no folder")?;
    match setup::ensure_arm_gcc()? {
        Ok(()) => firmware(toolchain, &folder)?,
        Err(why) => println!("skipped: the firmware in C, because {why}"),
    }
    match answer("gcc", &["--version"]) {
        Some(_) => hostile(&folder, library)?,
        None => println!("skipped: the hostile calls, because there is no gcc"),
    }
    match answer("cmake", &["--version"]) {
        Some(_) => host(&folder, library),
        None => {
            println!("skipped: the example for a host, because there is no cmake");
            Ok(())
        }
    }
}

/// Exports the MLP of the firmware `mlp`, also as C, and as C another model and one without kernels. Returns their folder.
fn export() -> Result<PathBuf> {
    let folder = models::export("mlp")?;
    let other = models::of("mlp:8-4-2", &["infer"])?;
    let empty = Artifact::new().to_bytes()?.to_vec();
    for (name, artifact) in [("model", fs::read(folder.join("model.grdl"))?), ("other", other), ("empty", empty)] {
        let files = c_source::files(&artifact, name, "cargo xtask")?;
        fs::write(folder.join(format!("{name}.c")), files.source)?;
        fs::write(folder.join(format!("{name}.h")), files.header)?;
    }
    Ok(folder)
}

/// Builds the firmware in C. Fails if a loss or a weight differs from the host's, or if it is larger or slower than the one in Rust, beyond
/// [`MORE`].
fn firmware(toolchain: &Toolchain, folder: &Path) -> Result<()> {
    let mut command = toolchain.cargo_for(M4F.triple, &boards::builds(), Some(NO_HEAP), "rustc");
    command.args(["--package", "gradlet-c", "--profile", "device", "--crate-type", "staticlib", "--quiet"]);
    shell::run(command.envs(M4F.flags()))?;
    let library = boards::builds().join(M4F.triple).join("device/libgradlet_c.a");
    let build = folder.join("c");
    let mut make = Command::new("make");
    make.args(["--silent", "--always-make", "-C"]).arg(root().join("c/examples/bare-metal"));
    for (name, path) in [("LIBRARY", &library), ("MODEL", &folder.to_path_buf()), ("BUILD", &build)] {
        make.arg(format!("{name}={}", path.display()));
    }
    shell::run(&mut make)?;

    let c = Firmware::new(build.join("mlp.elf"), &M4F);
    let rust = firmware::build(toolchain, "mlp", Some(folder))?;
    let elf = Elf::read(&c.elf)?;
    let unwanted = [elf.allocator_symbols()?, elf.forbidden_symbols()?].concat();
    ensure!(unwanted.is_empty(), "the firmware in C links {}", unwanted.join(", "));
    let flash = [elf.bytes()?.flash_code, Elf::read(&rust.elf)?.bytes()?.flash_code];
    let steps = STEPS.to_string();
    let run = |firmware| firmware::run(firmware, folder, &[&steps, LOG], LIMIT)?.ok();
    let second = run(&rust)?;
    let first = run(&c)?;
    bits::compare(&fs::read(folder.join(LOG))?, &bits::host(&fs::read(folder.join("model.grdl"))?, "train", STEPS)?)?;
    let of_step = [first.number("instructions_train_step")?, second.number("instructions_train_step")?];
    let [stack, rust_stack] = [first.number("stack_train")?, second.number("stack_train")?];
    println!("flash: {} bytes in C, {} in Rust", flash[0], flash[1]);
    println!("training step: {} instructions in C, {} in Rust; stack: {stack} and {rust_stack} bytes", of_step[0], of_step[1]);
    ensure!(flash[0] <= flash[1] + MORE[0], "the firmware in C has more than {} bytes of flash beyond the one in Rust", MORE[0]);
    ensure!(
        of_step[0] * 1000 <= of_step[1] * (1000 + MORE[1]),
        "a training step in C takes more than {} ‰ beyond the one in Rust",
        MORE[1]
    );
    Ok(())
}

/// Runs the hostile calls under the sanitizers of addresses and of undefined behaviour. Fails if one of them has another outcome than an
/// error code, or if a function of the header has none.
fn hostile(folder: &Path, library: &Path) -> Result<()> {
    let c = root().join("c");
    let header = c.join("include/gradlet.h");
    shell::run(Command::new("gcc").args(["-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]).arg(&header))?;
    let program = folder.join("c/hostile");
    fs::create_dir_all(folder.join("c"))?;
    let mut gcc = Command::new("gcc");
    gcc.args([
        "-std=c11",
        "-pedantic-errors",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ]);
    for include in [&c.join("include"), folder] {
        gcc.arg("-I").arg(include);
    }
    let parts = ["", "_program", "_tensors", "_checkpoint", "_telemetry"];
    gcc.args(parts.map(|part| c.join(format!("tests/hostile{part}.c"))));
    gcc.args(["model.c", "other.c", "empty.c"].map(|file| folder.join(file)))
        .arg(library.join("libgradlet_c.a"))
        .args(["-lm", "-lpthread", "-ldl", "-o"])
        .arg(&program);
    shell::run(&mut gcc)?;
    let output = Command::new(&program).output().with_context(|| format!("cannot start {}", program.display()))?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "hostile calls ended with {}:\n{text}{errors}", output.status);
    let failed = text.lines().filter_map(|line| line.split_once('=')).filter(|(_, count)| *count != "0").map(|(name, _)| name);
    let failed: BTreeSet<&str> = failed.collect();
    let header = fs::read_to_string(header)?;
    let missing: Vec<&str> = functions(&header).into_iter().filter(|name| !failed.contains(name)).collect();
    ensure!(missing.is_empty(), "c/tests has no hostile call of {}", missing.join(", "));
    let last = text.lines().last().unwrap_or_default();
    ensure!(last.ends_with(" calls, 0 wrong"), "the last line of the hostile calls is {last}");
    println!("{last}, of {} functions", functions(&header).len());
    Ok(())
}

/// Returns the names of the functions that a header declares.
fn functions(header: &str) -> BTreeSet<&str> {
    let declared = header.lines().filter(|line| !line.trim_start().starts_with('*') && !line.starts_with([' ', '#']));
    let before = declared.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    before.filter_map(|before| before.rsplit([' ', '*']).next()).filter(|name| name.starts_with("gradlet_")).collect()
}

/// Installs the library in a folder, builds the example for a host with CMake and pkg-config, and runs it.
fn host(folder: &Path, library: &Path) -> Result<()> {
    let [installed, build] = ["c/installed", "c/host"].map(|name| folder.join(name));
    shell::run(Command::new("sh").arg(root().join("c/install.sh")).arg(library).arg(&installed))?;
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(root().join("c/examples/host")).arg("-B").arg(&build).arg("--log-level=WARNING");
    configure.arg(format!("-DMODEL={}", folder.display())).arg("-DCMAKE_BUILD_TYPE=Release");
    for command in [configure.env("PKG_CONFIG_PATH", installed.join("lib/pkgconfig")), Command::new("cmake").arg("--build").arg(&build)] {
        let output = command.output().with_context(|| format!("cannot start {}", shell::name(command)))?;
        let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        ensure!(output.status.success(), "`{}` failed:\n{text}{errors}", shell::line(command));
    }
    for kind in ["static", "shared"] {
        let program = build.join(format!("train_{kind}"));
        let output = Command::new(&program).output().with_context(|| format!("cannot start {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{} failed:\n{text}{}", program.display(), String::from_utf8_lossy(&output.stderr));
        let losses: Vec<f32> = text.lines().filter_map(|line| line.split_once("loss ")?.1.trim().parse().ok()).collect();
        let [first, .., last] = *losses else { bail!("{} printed no losses:\n{text}", program.display()) };
        ensure!(last < first, "{} did not learn: the loss went from {first} to {last}", program.display());
        println!("the {kind} library of this machine: the loss went from {first} to {last}");
    }
    Ok(())
}
