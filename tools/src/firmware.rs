//! Builds firmwares and runs them under QEMU.

use crate::elf::Elf;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use xtask::boards::{self, M4F, TARGETS, Target};
use xtask::setup::{self, HEAP, NO_HEAP, Toolchain};
use xtask::shell;

/// Names of all firmwares of the board.
pub const ALL: [&str; 21] = [
    "bare",
    "empty",
    "flat",
    "telemetry",
    "train",
    "mlp",
    "lstm",
    "book",
    "demo",
    "dispatch",
    "infer",
    "restart",
    "helium",
    "hostile",
    "slices",
    "two",
    "update",
    "rtic",
    "embassy",
    "runner",
    EAGER,
];
/// Firmwares without a function that panics, formats text or divides 64-bit numbers. They link all of gradlet's runtime: the loader, the
/// executor, checkpoints, slots and telemetry. Only the firmwares with all kernels or a heap still link such functions.
const BARE: [&str; 12] = ["bare", "empty", "flat", "telemetry", "train", "mlp", "lstm", "book", "demo", "dispatch", "infer", "restart"];
/// Name of the only firmware with a heap.
const EAGER: &str = "eager";

/// A firmware for a target.
pub struct Firmware {
    /// Path of the ELF file.
    pub elf: PathBuf,
    target: &'static Target,
}

impl Firmware {
    /// Describes a firmware for `target` that was built elsewhere.
    pub fn new(elf: PathBuf, target: &'static Target) -> Firmware {
        Firmware { elf, target }
    }
}

/// Builds firmware `name` for the Cortex-M4F, with the model in `folder` (`None` for a firmware without a model).
pub fn build(toolchain: &Toolchain, name: &str, folder: Option<&Path>) -> Result<Firmware> {
    build_for(toolchain, &M4F, name, folder)
}

/// Builds firmware `name` for `target`, with the model in `folder` (`None` for a firmware without a model). The firmware is a copy: a build
/// for another model or processor replaces cargo's own file, also while this firmware runs.
pub fn build_for(toolchain: &Toolchain, target: &'static Target, name: &str, folder: Option<&Path>) -> Result<Firmware> {
    let library = if name == EAGER { HEAP } else { NO_HEAP };
    let mut command = toolchain.cargo(target, library, "build");
    command.args(["--release", "--quiet", "--locked", "--bin", name, "--no-default-features", "--features", target.board]);
    if name == EAGER {
        command.args(["--features", "alloc"]);
    }
    if let Some(folder) = folder {
        let folder = folder.canonicalize().with_context(|| format!("there is no folder {}", folder.display()))?;
        command.env("GRADLET_FIRMWARE_DIR", folder);
    }
    shell::run(&mut command)?;
    let built = boards::builds().join(target.triple).join("release").join(name);
    let model = folder.and_then(Path::file_name).map_or("none".into(), |model| model.to_string_lossy());
    let path = boards::folder(&format!("elf/{}/{model}", target.name))?.join(name);
    fs::copy(&built, &path).with_context(|| format!("cannot copy {}", built.display()))?;
    let elf = Elf::read(&path)?;
    let allocator = elf.allocator_symbols()?;
    ensure!(allocator.is_empty() || name == EAGER, "the firmware {name} has an allocator: {}", allocator.join(", "));
    let forbidden = elf.forbidden_symbols()?;
    ensure!(forbidden.is_empty() || !BARE.contains(&name), "the firmware {name} for {} links {}", target.name, forbidden.join(", "));
    Ok(Firmware { elf: path, target })
}

/// Builds the common parts of the firmwares without a heap for the device: the board library and gradlet's core.
pub fn prepare(toolchain: Toolchain) -> Result<()> {
    shell::run(toolchain.cargo(&M4F, NO_HEAP, "build").args(["--release", "--quiet", "--locked", "--lib"]))
}

/// Result of a firmware's run.
pub struct Run {
    values: BTreeMap<String, String>,
    /// Complete output on its console.
    pub console: String,
    /// True if the firmware ended with success.
    pub success: bool,
}

impl Run {
    /// Returns the number that the firmware reported as `key`.
    pub fn number(&self, key: &str) -> Result<u64> {
        let value = self.text(key)?;
        value.parse().with_context(|| format!("the firmware reported {key}={value}"))
    }

    /// Returns the text that the firmware reported as `key`.
    pub fn text(&self, key: &str) -> Result<&str> {
        self.values.get(key).map(String::as_str).with_context(|| format!("the firmware did not report {key}:\n{}", self.console))
    }

    /// Returns the run if the firmware ended with success. Otherwise, returns an error with the console's text.
    pub fn ok(self) -> Result<Run> {
        ensure!(self.success, "the firmware failed; its console:\n{}", self.console);
        Ok(self)
    }
}

/// Runs a firmware under QEMU. Its file names are relative to `folder`. The words in `arguments` must not contain spaces or commas.
///
/// Fails if it takes longer than `limit`.
pub fn run(firmware: &Firmware, folder: &Path, arguments: &[&str], limit: Duration) -> Result<Run> {
    run_with_uart(firmware, folder, arguments, limit, &mut |_| ())
}

/// Like [`run`], but passes the bytes that the firmware sends over its UART to `uart` as they arrive.
pub fn run_with_uart(
    firmware: &Firmware,
    folder: &Path,
    arguments: &[&str],
    limit: Duration,
    uart: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<Run> {
    let mut command = qemu(firmware, arguments);
    let mut child = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start QEMU")?;
    let (serial, errors) = (child.stdout.take(), reader(child.stderr.take()));
    let success = thread::scope(|threads| {
        threads.spawn(|| pass_on(serial, uart));
        wait(&mut child, limit)
    });
    let console = errors.join().unwrap_or_default();
    let name = firmware.elf.file_name().unwrap_or_default().to_string_lossy();
    let Some(success) = success? else { bail!("the firmware {name} ran for more than {limit:?}; its console:\n{console}") };
    let mut values = BTreeMap::new();
    for (key, value) in console.lines().filter_map(|line| line.split_once('=')) {
        // A firmware that restarts reports some figures again. The highest one counts.
        let figure = |value: &str| value.parse::<u64>().ok();
        if values.get(key).is_none_or(|old: &String| figure(old) < figure(value)) {
            values.insert(key.to_string(), value.to_string());
        }
    }
    Ok(Run { values, console, success })
}

/// Returns the command that runs a firmware in QEMU, with its UART on stdout and its console on stderr.
pub fn qemu(Firmware { elf, target }: &Firmware, arguments: &[&str]) -> Command {
    let name = elf.file_name().unwrap_or_default().to_string_lossy();
    let words = std::iter::once(&*name).chain(arguments.iter().copied());
    let arguments: String = words.map(|word| format!(",arg={word}")).collect();
    let mut command = Command::new(target.qemu());
    // `sleep=off`: while the firmware waits, the virtual time jumps ahead.
    command.args(["-machine", target.board, "-icount"]).arg(format!("shift={},sleep=off", target.shift()));
    command.args(["-display", "none", "-monitor", "none", "-serial", "stdio"]);
    if target.is_riscv() {
        command.args(["-bios", "none"]);
    }
    command.arg("-semihosting-config").arg(format!("enable=on,target=native{arguments}"));
    command.arg("-kernel").arg(elf);
    command
}

/// Waits for the child. Returns true if it ended with success, or `None` if it ran past `limit` and was killed.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<bool>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Passes the bytes of a stream to `each` as they arrive, until the end of the stream.
fn pass_on(stream: Option<impl Read>, each: &mut (dyn FnMut(&[u8]) + Send)) {
    let (Some(mut stream), mut buffer) = (stream, [0; 4096]) else { return };
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        each(&buffer[..count]);
    }
}

fn reader(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Fails if the instruction counter is wrong for a loop of known length.
pub fn check(toolchain: &Toolchain) -> Result<()> {
    let bare = build(toolchain, "bare", None)?;
    let run = run(&bare, &boards::no_model()?, &[], Duration::from_secs(60))?.ok()?;
    // 2,001 iterations of a loop of two instructions.
    let counted = run.number("instructions")?;
    ensure!((4_000..4_010).contains(&counted), "the counter counted {counted} instructions instead of 4,002");
    Ok(())
}

/// Runs `cargo xtask firmware`.
pub fn task(names: &[String], target: &str, model: Option<&Path>, arguments: Option<&[String]>) -> Result<()> {
    setup::ensure()?;
    let target = find(target)?;
    let toolchain = setup::ensure_target(target)?.map_err(anyhow::Error::msg)?;
    for name in names {
        let folder = Path::new(name);
        if folder.join("Cargo.toml").exists() {
            Project::open(folder)?.start(arguments)?;
            continue;
        }
        ensure!(
            ALL.contains(&name.as_str()),
            "there is no firmware {name}: the firmwares are {}; a path is that of a project",
            ALL.join(", ")
        );
        let firmware = build_for(&toolchain, target, name, model)?;
        println!("{}", firmware.elf.display());
        if let Some(arguments) = arguments {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let run = run(&firmware, &std::env::current_dir()?, &arguments, Duration::from_secs(600))?;
            print!("{}", run.console);
            ensure!(run.success, "the firmware {name} ended with failure");
        }
    }
    Ok(())
}

/// The folder of a firmware project outside `boards/`, such as `gradlet new` writes.
pub struct Project {
    folder: PathBuf,
    /// Rust's name of its target.
    pub triple: String,
}

impl Project {
    /// Opens the project in `folder`. Its `.cargo/config.toml` names the target.
    pub fn open(folder: &Path) -> Result<Project> {
        let path = folder.join(".cargo/config.toml");
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}, which names the target", path.display()))?;
        let triple = config.lines().find_map(|line| line.strip_prefix("target = "));
        let triple = triple.with_context(|| format!("{} has no line `target = …`", path.display()))?;
        Ok(Project { folder: folder.into(), triple: triple.trim_matches('"').into() })
    }

    /// Returns the command `cargo SUBCOMMAND --release` for the project, with its builds in `target`.
    pub fn cargo(&self, toolchain: &Toolchain, target: &Path, subcommand: &str) -> Command {
        let mut command = toolchain.cargo_for(&self.triple, target, Some(HEAP), subcommand);
        command.args(["--release", "--quiet"]).current_dir(&self.folder);
        command
    }

    /// Builds the project, and runs it with `arguments` if there are any, with the runner that it names.
    fn start(&self, arguments: Option<&[String]>) -> Result<()> {
        let missing = || format!("there is no Rust for {0}: run `rustup target add {0}`", self.triple);
        let toolchain = Toolchain::with_target(&self.triple).with_context(missing)?;
        let target = self.folder.canonicalize()?.join("target");
        let Some(arguments) = arguments else { return shell::run(&mut self.cargo(&toolchain, &target, "build")) };
        shell::run(self.cargo(&toolchain, &target, "run").arg("--").args(arguments))
    }
}

/// Returns the target `name`.
pub fn find(name: &str) -> Result<&'static Target> {
    let names = || TARGETS.each_ref().map(|target| target.name).join(", ");
    TARGETS.iter().find(|target| target.name == name).with_context(|| format!("there is no target {name}: the targets are {}", names()))
}
