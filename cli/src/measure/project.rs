//! The firmware that measures a model: its project, its build, and its run in QEMU.

use super::cpus::{Clock, Cpu, SHIFT};
use super::runs::Run;
use crate::firmware;
use anyhow::{Context, Result, bail, ensure};
use gradlet::io::{FileError, write_whole};
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Bytes of RAM beside the arena: the stack and the counts of ops.
const REST: usize = 64 << 10;
const QEMU: &str = "qemu-system-arm";

/// The contents of a template.
macro_rules! template {
    ($path:literal) => {
        include_str!(concat!("../../templates/", $path))
    };
}

/// The folder of the project and its builds. While a command has it, others wait.
pub struct Project {
    folder: PathBuf,
    _lock: File,
}

impl Project {
    /// Writes the project of the firmware that does these `runs` on `cpu`. `core` is the folder of gradlet-core, if the user has named one.
    pub fn new(cpu: &Cpu, core: Option<&Path>, artifact: &[u8], runs: &[Run]) -> Result<Project> {
        let inputs = runs.iter().flat_map(|run| &run.inputs).flatten().copied().collect::<Vec<u8>>();
        let arena = runs.iter().map(|run| run.arena).max().unwrap_or(0);
        let [_, (_, flash), (_, ram)] = cpu.memory;
        for (needs, of, has) in [(artifact.len() + inputs.len(), "flash", flash), (arena + REST, "RAM", ram)] {
            ensure!(
                needs <= has as usize,
                "the run needs {needs} bytes of {of}: the board that QEMU emulates for a {} has {has}",
                cpu.name
            );
        }
        let folder = cache()?;
        fs::create_dir_all(folder.join("src")).map_err(|error| FileError::io(&folder, error))?;
        let lock = File::create(folder.join("lock")).map_err(|error| FileError::io(&folder, error))?;
        lock.lock()?;
        let project = Project { folder, _lock: lock };
        let helium = match cpu.of {
            firmware::Cpu::CortexM55 => format!("gradlet-helium = {}\n", firmware::helium(core)?),
            _ => String::new(),
        };
        let manifest = template!("measure/manifest.toml").replace("{{core}}", &firmware::core(core)?).replace("{{helium}}\n", &helium);
        project.write("Cargo.toml", [&manifest, "\n", template!("common/profile.toml")])?;
        project.write("Cargo.lock", [&template!("mps2-an386/Cargo.lock").replace("{{name}}", "measure")])?;
        project.write("build.rs", [template!("common/build.rs")])?;
        project.write("memory.x", [&memory(cpu)])?;
        project.write("src/main.rs", [template!("measure/src/main.rs")])?;
        project.write("src/stack.rs", [template!("measure/src/stack.rs")])?;
        project.write("src/clock.rs", [&clock(cpu)])?;
        project.write("src/model.rs", [&cpu.of.source(artifact, "gradlet")?])?;
        project.write("src/runs.rs", [&source(runs, arena)])?;
        write_whole(&project.folder.join("model.grdl"), artifact)?;
        write_whole(&project.folder.join("inputs.bin"), &inputs)?;
        Ok(project)
    }

    fn write<const N: usize>(&self, path: &str, parts: [&str; N]) -> Result<()> {
        Ok(write_whole(&self.folder.join(path), parts.concat().as_bytes())?)
    }

    /// Builds the firmware. Returns its path.
    pub fn build(&self, cpu: &Cpu) -> Result<PathBuf> {
        let target = self.folder.join("target");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        cargo.args(["build", "--release", "--quiet", "--target", cpu.triple, "--target-dir"]).arg(&target).current_dir(&self.folder);
        // Variables of a cargo that may run this command. They have other flags and libraries.
        cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("LD_LIBRARY_PATH");
        cargo.env("RUSTFLAGS", format!("-C target-cpu={}", cpu.name));
        let Output { status, stderr, .. } = output(&mut cargo, "cargo", "install Rust from https://rustup.rs")?;
        let said = String::from_utf8_lossy(&stderr);
        if said.contains("E0463") {
            bail!("there is no Rust for the {}: run `rustup target add {}`", cpu.name, cpu.triple);
        }
        ensure!(status.success(), "the firmware that measures does not build:\n{}", said.trim_end());
        Ok(target.join(cpu.triple).join("release/measure"))
    }
}

/// Fails if QEMU is not installed.
pub fn find_qemu() -> Result<()> {
    output(Command::new(QEMU).arg("--version"), QEMU, "run `sudo apt-get install qemu-system-arm`, or `brew install qemu`").map(drop)
}

/// Runs the firmware in QEMU. Returns what it prints.
pub fn run(cpu: &Cpu, firmware: &Path) -> Result<String> {
    let mut qemu = Command::new(QEMU);
    qemu.args(["-machine", cpu.machine, "-icount"]).arg(format!("shift={SHIFT},sleep=off"));
    qemu.args(["-display", "none", "-monitor", "none", "-serial", "null"]);
    qemu.args(["-semihosting-config", "enable=on,target=native", "-kernel"]).arg(firmware);
    let Output { status, stdout, stderr } = qemu.output().with_context(|| format!("cannot start {QEMU}"))?;
    let said = String::from_utf8_lossy(&stdout).into_owned();
    if let Some(error) = said.lines().find_map(|line| line.strip_prefix("error ")) {
        bail!("the run in QEMU failed: {error}");
    }
    ensure!(status.success(), "the run in QEMU failed: {said}{}", String::from_utf8_lossy(&stderr));
    Ok(said)
}

/// Returns the output of `command`. If there is no such program, the error says how to install it.
fn output(command: &mut Command, name: &str, install: &str) -> Result<Output> {
    command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::anyhow!("--measure needs {name}, which is not installed: {install}"),
        _ => anyhow::Error::new(error).context(format!("cannot start {name}")),
    })
}

/// Returns the folder for the project, in the user's folder for files that can be made again.
fn cache() -> Result<PathBuf> {
    let folder = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let folder = folder.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    Ok(folder.context("there is no home folder: name one for the build in XDG_CACHE_HOME")?.join("gradlet/measure"))
}

fn memory(cpu: &Cpu) -> String {
    let names = ["flash", "model", "ram"].into_iter().zip(cpu.memory);
    names.fold(template!("measure/memory.x").into(), |text: String, (name, (first, bytes))| {
        text.replace(&format!("{{{{{name}}}}}"), &format!("{first:#x}")).replace(&format!("{{{{{name}_bytes}}}}"), &bytes.to_string())
    })
}

fn clock(cpu: &Cpu) -> String {
    let (source, address) = match cpu.clock {
        Clock::Timer(address) => (template!("measure/src/timer.rs"), address),
        Clock::Counter(address) => (template!("measure/src/counter.rs"), address),
    };
    source.replace("{{clock}}", &format!("{address:#x}"))
}

/// Returns `src/runs.rs`.
fn source(runs: &[Run], arena: usize) -> String {
    let ops = runs.iter().map(|run| run.ops).max().unwrap_or(0);
    let mut text = format!(
        "//! The runs.\n\npub const ARENA_BYTES: usize = {arena};\npub const OPS: usize = {ops};\n\n\
         /// A run of a signature. Its inputs begin at the byte `first` of all inputs.\n\
         pub struct Run {{\n    pub signature: &'static str,\n    pub first: usize,\n    pub inputs: usize,\n    \
         pub outputs: usize,\n}}\n\n\
         pub static RUNS: [Run; {}] = [\n",
        runs.len()
    );
    let mut first = 0;
    for Run { signature, inputs, outputs, .. } in runs {
        let _ =
            writeln!(text, "    Run {{ signature: {signature:?}, first: {first}, inputs: {}, outputs: {} }},", inputs.len(), outputs.len());
        first += inputs.iter().map(Vec::len).sum::<usize>();
    }
    text + "];\n"
}
