//! The emulated boards, and folders for the models of their firmwares.

use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// Code for a processor, on the board that runs it.
pub struct Target {
    /// Name of the target.
    pub name: &'static str,
    /// Name of the board: of QEMU's machine, and of the feature of the package `boards/emulated`.
    pub board: &'static str,
    /// Rust's name of the target.
    pub triple: &'static str,
    /// The compiler's name of the processor, if it is not the one that the target implies.
    cpu: Option<&'static str>,
}

const fn target(name: &'static str, board: &'static str, triple: &'static str, cpu: Option<&'static str>) -> Target {
    Target { name, board, triple, cpu }
}

/// All targets. A thumbv6m program runs on the MPS2 board too, which has more RAM than a microbit.
pub static TARGETS: [Target; 9] = [
    M4F,
    target("m0", "microbit", "thumbv6m-none-eabi", Some("cortex-m0")),
    target("m0-mps2", "mps2-an385", "thumbv6m-none-eabi", Some("cortex-m0")),
    target("m3", "mps2-an385", "thumbv7m-none-eabi", Some("cortex-m3")),
    target("m7", "mps2-an500", "thumbv7em-none-eabihf", Some("cortex-m7")),
    target("m33", "mps2-an505", "thumbv8m.main-none-eabihf", Some("cortex-m33")),
    target("m55", "mps3-an547", "thumbv8m.main-none-eabihf", Some("cortex-m55")),
    target("rv32imac", "virt", "riscv32imac-unknown-none-elf", None),
    target("rv32imc", "virt", "riscv32imc-unknown-none-elf", None),
];

/// The target of the firmwares that do not name one: a Cortex-M4F.
pub const M4F: Target = target("m4f", "mps2-an386", "thumbv7em-none-eabihf", Some("cortex-m4"));

impl Target {
    /// True if the processor is a RISC-V.
    pub fn is_riscv(&self) -> bool {
        self.triple.starts_with("riscv")
    }

    /// Returns the variable with the compiler's flags for the processor, if it needs some.
    pub fn flags(&self) -> Option<(&'static str, String)> {
        self.cpu.map(|cpu| ("RUSTFLAGS", format!("-C target-cpu={cpu}")))
    }

    /// Name of QEMU's program.
    pub fn qemu(&self) -> &'static str {
        if self.is_riscv() { "qemu-system-riscv32" } else { "qemu-system-arm" }
    }

    /// Nanoseconds that QEMU's time advances with each instruction, as a power of two. A RISC-V counts instructions itself.
    pub fn shift(&self) -> u32 {
        if self.is_riscv() { 0 } else { 6 }
    }
}

/// Returns the folder of the builds. All processors share what is built for this machine, such as macros. Cargo keeps the libraries of two
/// processors with the same triple apart, by their flags. Their firmwares have the same path, and each build replaces the one before.
pub fn builds() -> PathBuf {
    shell::root().join("boards/target")
}

/// Returns the folder for the model of firmware `name`, and creates it if it does not exist.
pub fn folder(name: &str) -> Result<PathBuf> {
    let folder = shell::root().join("target/firmware").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Returns a folder with empty models. Every firmware compiles with it, for lints.
pub fn no_model() -> Result<PathBuf> {
    const SOURCE: &str = "pub static KERNELS: &[&gradlet_core::Kernel] = &[];\npub const ARENA_BYTES: usize = 16;\n\
                          pub const SCRATCH_BYTES: usize = 8;\npub const KEPT_BYTES: usize = 8;\n";
    let folder = folder("none")?;
    for model in ["model", "second"] {
        fs::write(folder.join(format!("{model}.grdl")), [])?;
        fs::write(folder.join(format!("{model}.rs")), SOURCE)?;
    }
    fs::write(folder.join("digits.bin"), [0; 8])?;
    Ok(folder)
}
