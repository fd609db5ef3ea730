//! The GPU and its driver.

use anyhow::{Context, Result, ensure};
use gradlet::cuda::{Driver, Gpu};
use std::fs;
use xtask::shell;

/// The kernel module's own statement of its version.
const MODULE: &str = "/proc/driver/nvidia/version";
/// Word in the name of the emulator's GPU.
const EMULATED: &str = "Emulated";

/// Facts that the figures depend on.
#[derive(Clone)]
pub struct Machine {
    /// Name of the GPU.
    pub gpu: String,
    /// The other facts, each with its name.
    pub facts: Vec<(&'static str, String)>,
}

impl Machine {
    /// Returns the facts of the first GPU that gradlet supports.
    pub fn find() -> Result<Machine> {
        let needed = "`bench cuda` needs an NVIDIA GPU of compute capability 7.0 or later, and its driver";
        let driver = Driver::load().context(needed)?;
        let gpu = driver.gpus()?.into_iter().find(Gpu::is_supported).context("the driver has no such GPU").context(needed)?;
        let (major, minor) = gpu.compute_capability();
        let memory = if gpu.is_integrated() { "MiB, shared with the CPU" } else { "MiB" };
        let mut facts = vec![
            ("compute capability", format!("{major}.{minor}")),
            ("multiprocessors", gpu.multiprocessors().to_string()),
            ("memory", format!("{} {memory}", gpu.memory() >> 20)),
            ("driver", driver.to_string()),
        ];
        let module = fs::read_to_string(MODULE).unwrap_or_default();
        facts.extend(module_version(&module).map(|version| ("kernel module", version.to_string())));
        let mode = shell::answer("nvpmodel", &["-q"]);
        facts.extend(mode.map(|mode| ("power mode", mode.lines().collect::<Vec<_>>().join(" "))));
        Ok(Machine { gpu: gpu.name().into(), facts })
    }

    /// Fails if the GPU is the emulator's.
    pub fn ensure_real(&self) -> Result<()> {
        ensure!(
            !self.gpu.contains(EMULATED),
            "{:?} is no GPU, so its figures are not written: run `bench cuda --write` on a GPU",
            self.gpu
        );
        Ok(())
    }

    /// Returns the name of the GPU with a hyphen for each character that could be special in a path.
    pub fn file_name(&self) -> String {
        self.gpu.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
    }
}

/// Returns the version in the kernel module's statement.
fn module_version(statement: &str) -> Option<&str> {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    statement.lines().next()?.split_whitespace().find(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_gpu_is_refused() {
        let machine = |gpu: &str| Machine { gpu: gpu.into(), facts: Vec::new() };
        let refusal = machine("Emulated GPU").ensure_real().unwrap_err().to_string();
        assert!(refusal.contains("\"Emulated GPU\" is no GPU"), "{refusal}");
        machine("NVIDIA H100 80GB HBM3").ensure_real().unwrap();
        assert_eq!(machine("NVIDIA RTX 4090/D").file_name(), "NVIDIA-RTX-4090-D");
    }

    #[test]
    fn the_module_has_a_version() {
        let statement =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: gcc 12.2.0\n";
        assert_eq!(module_version(statement), Some("550.54.15"));
        assert_eq!(module_version("no such file"), None);
    }
}
