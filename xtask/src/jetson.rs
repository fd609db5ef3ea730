//! Finds or installs what builds and runs programs for a Jetson's CPU: a linker, the standard library, and an emulator.

use crate::boards;
use crate::setup::{Toolchain, ensure_programs, toolchain_for};
use crate::shell::{answer, root};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The command that runs a Jetson's programs, in front of their paths. It leaves out the compiler's allocator, which they cannot load.
pub const RUNNER: &str = "qemu-aarch64 -U LD_PRELOAD -cpu max -L /usr/aarch64-linux-gnu";
/// The command that runs them on the CPU of the first Jetsons, which has only the instructions that every CPU of the target has.
pub const FIRST_RUNNER: &str = "qemu-aarch64 -U LD_PRELOAD -cpu cortex-a57 -L /usr/aarch64-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const PROGRAMS: [&str; 2] = ["qemu-aarch64", LINKER];
const PACKAGES: [&str; 3] = ["qemu-user", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];
/// Debian's package of the standard library.
const LIBRARY: &str = "libstd-rust-web-dev";

/// A toolchain for a Jetson's CPU.
pub struct Jetson {
    toolchain: Toolchain,
    /// Folder with the compiled standard library. Without it, Debian's toolchain compiles its sources.
    library: Option<PathBuf>,
}

impl Jetson {
    /// Returns the toolchain. Installs the linker and the emulator for its programs, if one of them is missing. The inner error is the
    /// reason why there is no toolchain.
    pub fn ensure() -> Result<Result<Jetson, String>> {
        if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
            return Ok(Err("a Jetson's programs run only on x86-64 Linux".into()));
        }
        let programs = ensure_programs("The programs of a Jetson need", &PROGRAMS, &PACKAGES)?;
        Ok(programs.and_then(|()| toolchain_for(TARGET)).map(|toolchain| {
            let library = match toolchain {
                Toolchain::Active => None,
                Toolchain::Debian => debian_library().inspect_err(|error| println!("{error:#}: it is compiled from its sources")).ok(),
            };
            Jetson { toolchain, library }
        }))
    }

    /// Returns the command `cargo SUBCOMMAND` for a Jetson's CPU. The command `runner` runs the programs.
    pub fn cargo(&self, runner: &str, subcommand: &str) -> Command {
        let library = if self.library.is_some() { None } else { Some("std,panic_unwind,test") };
        let mut command = self.toolchain.cargo_for(TARGET, &boards::builds(), library, subcommand);
        command
            .envs([("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER), ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner)]);
        if let Some(library) = &self.library {
            // Words of this variable may have spaces.
            command.env("CARGO_ENCODED_RUSTFLAGS", format!("--sysroot\u{1f}{}", library.display()));
        }
        command
    }
}

/// Returns the folder of the programs that [`Jetson::cargo`] builds.
pub fn programs() -> PathBuf {
    boards::builds().join(TARGET).join("debug")
}

/// Returns the folder of Debian's compiled standard library. Unpacks the package of the compiler's version under target/ if it is missing:
/// the system's packages stay as they are.
fn debian_library() -> Result<PathBuf> {
    let version = answer("dpkg-query", &["--show", "--showformat=${Version}", LIBRARY]).with_context(|| format!("{LIBRARY} is missing"))?;
    let folder = root().join("target/jetson").join(&version);
    let library = folder.join("usr");
    if library.exists() {
        return Ok(library);
    }
    let partial = root().join("target/jetson/partial");
    if partial.exists() {
        // A run that was interrupted has left it.
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(partial.join("lists/partial"))?;
    fs::create_dir_all(partial.join("cache/archives/partial"))?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(&partial).args(["-qq", "-o", "APT::Architecture=arm64", "-o", "APT::Architectures=arm64"]);
        for (setting, place) in [("Dir::State::lists", "lists"), ("Dir::Cache", "cache")] {
            command.arg("-o").arg(format!("{setting}={}", partial.join(place).display()));
        }
        quietly(command.args(["-o", "Dir::State::status=/dev/null"]).args(arguments))
    };
    apt(&["update"])?;
    apt(&["download", &format!("{LIBRARY}={version}")])?;
    let packages = fs::read_dir(&partial)?.flatten().map(|entry| entry.path());
    let package = packages.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb")).context("apt-get left no package")?;
    let unpacked = partial.join("unpacked");
    quietly(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&unpacked))?;
    fs::rename(unpacked, folder)?;
    fs::remove_dir_all(partial)?;
    Ok(library)
}

/// Runs `command` without output. An error has its words.
fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", crate::shell::name(command)))?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
