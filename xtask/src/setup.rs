//! Finds or installs the tools of the tasks: Rust for the Cortex-M4F and QEMU for the firmwares, TensorFlow for comparisons, NVIDIA's
//! compilers, and a browser.

use crate::boards::{self, M4F, Target};
use crate::shell::{self, answer};
use anyhow::{Context, Result, bail};
use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A target without atomics.
pub const SMALL: &str = "thumbv6m-none-eabi";
/// Debian's package of the QEMU that runs a RISC-V.
const RISCV_QEMU: &str = "qemu-system-misc";
const ARM_GCC_PROGRAMS: [&str; 2] = ["arm-none-eabi-gcc", "make"];
/// Its headers without a C library are enough.
const ARM_GCC_PACKAGES: [&str; 2] = ["gcc-arm-none-eabi", "make"];
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_LLD: &str = "/usr/bin/rust-lld";
const CHROMIUMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium"];
/// NVIDIA's compilers: NVRTC, and its assembler for GPUs of the oldest and of the newest kind. Other versions would write other files.
const CUDA_PACKAGES: [&str; 3] = ["nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-nvcc-cu12==12.9.86", "nvidia-cuda-nvcc==13.5.37"];
const DEBIAN_PACKAGES: [&str; 5] = ["rustc-web", "cargo-web", "rust-web-src", "rust-web-llvm", "libjemalloc2"];

/// The crates of the standard library that a firmware needs, as `-Zbuild-std` names them.
pub const NO_HEAP: &str = "core";
/// The crates that a firmware with a heap needs.
pub const HEAP: &str = "core,alloc";

/// A Rust toolchain that builds for a target.
#[derive(Clone, Copy)]
pub enum Toolchain {
    /// The active toolchain, with the target's standard library installed.
    Active,
    /// Debian's toolchain. It builds the standard library from its own sources.
    Debian,
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = answer(self.rustc(), &["--version"]).unwrap_or_default();
        f.write_str(version.split(" (").next().unwrap_or_default())
    }
}

impl Toolchain {
    /// Returns the toolchain for the firmwares, if there is one.
    pub fn find() -> Option<Toolchain> {
        Toolchain::with_target(M4F.triple)
    }

    /// Returns the toolchain for `target`, if there is one.
    pub fn with_target(target: &str) -> Option<Toolchain> {
        let has = |rustc: &str, path: &str| answer(rustc, &["--print", "sysroot"]).is_some_and(|root| Path::new(&root).join(path).exists());
        if has("rustc", &format!("lib/rustlib/{target}/lib")) {
            return Some(Toolchain::Active);
        }
        let sources = has(DEBIAN_RUSTC, "lib/rustlib/src/rust/library/core");
        let whole = sources && Path::new(DEBIAN_CARGO).exists() && Path::new(DEBIAN_LLD).exists();
        whole.then_some(Toolchain::Debian)
    }

    /// Returns the command `cargo SUBCOMMAND` in boards/, for the firmwares of `target` that need `library`.
    pub fn cargo(&self, target: &Target, library: &str, subcommand: &str) -> Command {
        let mut command = self.cargo_for(target.triple, &boards::builds(), Some(library), subcommand);
        command.current_dir(shell::root().join("boards")).envs(target.flags());
        command
    }

    /// Returns the command `cargo SUBCOMMAND` for `target`, with the folder of its builds. Debian's toolchain also builds the crates in
    /// `library` (`-Zbuild-std`), if there are any.
    pub fn cargo_for(&self, target: &str, folder: &Path, library: Option<&str>, subcommand: &str) -> Command {
        let mut command = match self {
            Toolchain::Active => shell::cargo(),
            Toolchain::Debian => Command::new(DEBIAN_CARGO),
        };
        // The cargo that runs this task sets flags and libraries that are wrong for the target.
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        command.current_dir(shell::root()).args([subcommand, "--target", target, "--target-dir"]).arg(folder);
        if let Toolchain::Debian = self {
            command.envs([("RUSTC_BOOTSTRAP", "1"), ("RUSTC", DEBIAN_RUSTC), ("RUSTDOC", "/usr/bin/rustdoc")]);
            command.args(library.map(|crates| format!("-Zbuild-std={crates}")));
            command.envs(jemalloc().map(|file| ("LD_PRELOAD", file))).envs(shell::LARGE_PAGES);
        }
        command
    }

    /// Returns the variables that make another program's cargo build for a target, with the standard library that a firmware needs.
    pub fn variables(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Toolchain::Active => &[],
            Toolchain::Debian => {
                &[("CARGO", DEBIAN_CARGO), ("RUSTC", DEBIAN_RUSTC), ("RUSTC_BOOTSTRAP", "1"), ("CARGO_UNSTABLE_BUILD_STD", NO_HEAP)]
            }
        }
    }

    fn rustc(&self) -> &'static str {
        match self {
            Toolchain::Active => "rustc",
            Toolchain::Debian => DEBIAN_RUSTC,
        }
    }
}

/// Returns the file of jemalloc, if it is installed. rustup's compiler has this allocator; with it, Debian's takes an eighth less time.
fn jemalloc() -> Option<PathBuf> {
    let file = PathBuf::from(format!("/usr/lib/{}-linux-gnu/libjemalloc.so.2", std::env::consts::ARCH));
    file.exists().then_some(file)
}

/// Installs the missing tools for the firmwares. On a terminal, asks first. Returns quickly if nothing is missing.
pub fn ensure() -> Result<Toolchain> {
    let target = Toolchain::find().is_none();
    let qemu = answer(M4F.qemu(), &["--version"]).is_none();
    if target || qemu {
        install(target, qemu)?;
    }
    Toolchain::find().with_context(|| format!("there is still no Rust for {0}: run `rustup target add {0}`", M4F.triple))
}

fn install(target: bool, qemu: bool) -> Result<()> {
    let apt = answer("apt-get", &["--version"]).is_some();
    if qemu && !apt {
        let how = if cfg!(target_os = "macos") { "brew install qemu" } else { "https://www.qemu.org/download" };
        bail!(
            "{} is missing, and it cannot be installed without apt-get: install it with your system's package manager ({how})",
            M4F.qemu()
        );
    }
    if apt && no_lists() {
        println!("Fetching the package lists: apt-get update");
        shell::run(&mut apt_get(&["update"]))?;
    }
    let debian = target && apt && answer("apt-cache", &["show", "rust-web-src"]).is_some_and(|text| !text.is_empty());
    let mut packages = Vec::new();
    packages.extend(debian.then_some(DEBIAN_PACKAGES).into_iter().flatten());
    packages.extend(qemu.then_some(M4F.qemu()));

    println!("The firmwares need tools that are not installed. These will be installed:");
    packages.iter().for_each(|package| println!("  {package} (apt)"));
    match (target, debian) {
        (true, true) => println!("  lld, in the version that rust-web-llvm requires (apt)"),
        (true, false) => println!("  the target {} (rustup)", M4F.triple),
        _ => {}
    }
    confirm()?;
    if !packages.is_empty() {
        install_packages(&packages)?;
    }
    match (target, debian) {
        (true, true) => install_packages(&[&lld_package()?]),
        (true, false) => shell::run(Command::new("rustup").args(["target", "add", M4F.triple])),
        _ => Ok(()),
    }
}

/// Returns the toolchain for `target`. Installs the QEMU that runs its firmwares, if it is missing. The inner error is the reason why there
/// is no toolchain.
pub fn ensure_target(target: &Target) -> Result<Result<Toolchain, String>> {
    let qemu = ensure_programs("The firmwares need", &[target.qemu()], &[RISCV_QEMU])?;
    Ok(qemu.and_then(|()| toolchain_for(target.triple)))
}

/// Installs a C compiler for the Cortex-M4F and `make`, if they are missing. The inner error is the reason why they are still missing.
pub fn ensure_arm_gcc() -> Result<Result<(), String>> {
    ensure_programs("The firmware in C needs", &ARM_GCC_PROGRAMS, &ARM_GCC_PACKAGES)
}

/// Returns the toolchain for `target`, or the reason why there is none.
pub(crate) fn toolchain_for(target: &str) -> Result<Toolchain, String> {
    Toolchain::with_target(target).ok_or_else(|| format!("there is no Rust for {target}: run `rustup target add {target}`"))
}

/// Installs `packages` with apt-get if one of `programs` is missing, after the words `why`. The inner error names the program that is still
/// missing.
pub(crate) fn ensure_programs(why: &str, programs: &[&str], packages: &[&str]) -> Result<Result<(), String>> {
    let missing = || programs.iter().find(|program| answer(program, &["--version"]).is_none());
    if let Some(program) = missing() {
        if answer("apt-get", &["--version"]).is_none() {
            return Ok(Err(format!("{program} is missing, and it cannot be installed without apt-get")));
        }
        println!("{why} tools that are not installed. These will be installed:");
        packages.iter().for_each(|package| println!("  {package} (apt)"));
        confirm()?;
        install_packages(packages)?;
    }
    Ok(missing().map_or(Ok(()), |program| Err(format!("there is still no {program}"))))
}

fn confirm() -> Result<()> {
    if !std::io::stdin().is_terminal() {
        return Ok(());
    }
    print!("Go ahead? [Y/n] ");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    match line.trim().to_lowercase().as_str() {
        "" | "y" | "yes" => Ok(()),
        _ => bail!("nothing was installed, as you chose"),
    }
}

fn no_lists() -> bool {
    let lists = std::fs::read_dir("/var/lib/apt/lists").into_iter().flatten().flatten();
    !lists.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

/// Returns the name of Debian's lld package, such as `lld-19`. `rust-lld` is a symbolic link to a file of the same name.
fn lld_package() -> Result<String> {
    let link = std::fs::read_link(DEBIAN_LLD).with_context(|| format!("the package rust-web-llvm did not install {DEBIAN_LLD}"))?;
    Ok(link.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

fn install_packages(packages: &[&str]) -> Result<()> {
    let install = || shell::run(apt_get(&["install", "--yes", "--no-install-recommends"]).args(packages));
    // Old lists may name packages that no longer exist.
    install().or_else(|_| shell::run(&mut apt_get(&["update"])).and_then(|()| install()))
}

fn apt_get(arguments: &[&str]) -> Command {
    let root = answer("id", &["-u"]).is_some_and(|user| user == "0");
    let mut command = Command::new(if root { "apt-get" } else { "sudo" });
    if !root {
        command.arg("apt-get");
    }
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Variable with which Python compiles what it imports, and keeps nothing of it. An import of TensorFlow takes three times as long then.
pub const KEEPS_NOTHING: &str = "PYTHONDONTWRITEBYTECODE";

/// Returns a Python with TensorFlow, TensorBoard and the plugin of its Profile page. Creates it in an environment under target/ if missing.
pub fn install_tensorflow() -> Result<PathBuf> {
    let folder = shell::root().join("target/tensorflow");
    let python = folder.join("bin/python");
    let imports = Command::new(&python).args(["-c", "import tensorflow, tensorboard, xprof"]).env_remove(KEEPS_NOTHING).output();
    if !imports.is_ok_and(|output| output.status.success()) {
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let packages = ["tensorflow-cpu", "tensorboard", "xprof"];
        // Python compiles the few modules that it imports itself.
        shell::run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--no-compile"]).args(packages))?;
    }
    Ok(python)
}

/// NVIDIA's compilers. They need no GPU.
pub struct CudaCompilers {
    /// The library that compiles CUDA C to PTX.
    pub nvrtc: PathBuf,
    /// The assembler of CUDA 12, for GPUs before sm_110.
    pub ptxas_12: PathBuf,
    /// The assembler of CUDA 13, for sm_110.
    pub ptxas_13: PathBuf,
}

/// Returns NVIDIA's compilers. Installs them in an environment under target/ if one of them is missing or has another version.
pub fn install_cuda_compilers() -> Result<CudaCompilers> {
    const VERSIONS: &str = "import sys, importlib.metadata as installed\n\
                            print(*(f'{name}=={installed.version(name)}' for name in sys.argv[1:]))";
    let folder = shell::root().join("target/cuda");
    let python = folder.join("bin/python");
    let names = CUDA_PACKAGES.map(|package| package.split("==").next().unwrap_or(package));
    let ask = |arguments: &[&str]| shell::answer(&python.to_string_lossy(), arguments);
    if ask(&[&["-c", VERSIONS][..], &names].concat()) != Some(CUDA_PACKAGES.join(" ")) {
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let install = ["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "--no-deps"];
        shell::run(Command::new(&python).args(install).args(CUDA_PACKAGES))?;
    }
    let packages = ask(&["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).context("Python does not name its packages")?;
    let file = |name: &str| Path::new(&packages).join("nvidia").join(name);
    Ok(CudaCompilers {
        nvrtc: file("cuda_nvrtc/lib/libnvrtc.so.12"),
        ptxas_12: file("cuda_nvcc/bin/ptxas"),
        ptxas_13: file("cu13/bin/ptxas"),
    })
}

/// Returns the name of a Chromium-based browser. If none is installed, installs Chromium with apt-get.
pub fn install_chromium() -> Result<PathBuf> {
    let find = || CHROMIUMS.into_iter().find(|name| answer(name, &["--version"]).is_some());
    if find().is_none() {
        if answer("apt-get", &["--version"]).is_none() {
            let how = if cfg!(target_os = "macos") {
                "brew install --cask chromium"
            } else {
                "https://www.chromium.org/getting-involved/download-chromium"
            };
            bail!(
                "there is no Chromium for TensorBoard's pages: install it with your system's package manager ({how}), \
                 or name one in GRADLET_CHROMIUM"
            );
        }
        println!("TensorBoard's pages need Chromium, which is not installed. This will be installed:\n  chromium (apt)");
        confirm()?;
        install_packages(&["chromium"])?;
    }
    find().map(PathBuf::from).context("there is still no Chromium: name one in GRADLET_CHROMIUM")
}
