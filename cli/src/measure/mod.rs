//! The option `--measure` of `gradlet inspect` and `gradlet import`: a run of the model in QEMU.

mod cpus;
mod project;
mod runs;

use crate::firmware;
use anyhow::{Context, Result, ensure};
use clap::Args;
use cpus::{CPUS, Cpu};
use gradlet::artifact::describe::Description;
use gradlet::artifact::inspect::Measured;
use gradlet::device::AlignedBytes;
use indicatif::ProgressBar;
use project::Project;
use runs::Run;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The options of a measurement.
#[derive(Args)]
pub struct Measure {
    /// Also run each signature in QEMU: show the instructions of each op, and the stack
    ///
    /// A firmware with the model is built for the processor, which takes a minute at the first time, and runs on a board that QEMU
    /// emulates. A run begins with the initial variables. Inputs of floats and small integers are random numbers, others are zeros. QEMU
    /// counts instructions, not cycles. Needs `cargo`, Rust for the processor (`rustup target add thumbv7em-none-eabihf` for a Cortex-M4 or
    /// M7) and `qemu-system-arm`. Builds are kept in ~/.cache/gradlet.
    #[arg(long)]
    measure: bool,
    /// Folder of the crate gradlet-core that is measured, as for `gradlet new`
    #[arg(long, value_name = "DIR", requires = "measure")]
    core: Option<PathBuf>,
}

impl Measure {
    /// Measures the signatures of `description`, which are those of the artifact `bytes` or some of them. Returns an empty list without
    /// `--measure`.
    pub fn run(&self, cpu: firmware::Cpu, bytes: &[u8], description: &Description, quiet: bool) -> Result<Vec<Measured>> {
        if !self.measure {
            return Ok(Vec::new());
        }
        let wanted = if cpu == firmware::Cpu::Any { firmware::Cpu::CortexM4 } else { cpu };
        let cpu = CPUS.iter().find(|cpu| cpu.of == wanted).context("the processor is unknown")?;
        project::find_qemu()?;
        let artifact = AlignedBytes::from(bytes);
        let runs = description.signatures.iter().map(|signature| Run::on_host(&artifact, signature)).collect::<Result<Vec<_>>>()?;
        let progress = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        progress.enable_steady_tick(Duration::from_millis(100));
        progress.set_message(format!("building a firmware for the {}", cpu.name));
        let project = Project::new(cpu, self.core.as_deref(), bytes, &runs)?;
        let firmware = project.build(cpu)?;
        progress.set_message(format!("running on a {} in QEMU", cpu.name));
        let said = project::run(cpu, &firmware);
        progress.finish_and_clear();
        measured(cpu, &runs, &said?)
    }
}

/// Reads what the firmware prints. Fails if an output is not the host's.
fn measured(cpu: &Cpu, runs: &[Run], said: &str) -> Result<Vec<Measured>> {
    let [ticks, instructions] = cpu.ticks_and_instructions;
    let mut all: Vec<Measured> = Vec::new();
    let mut outputs: Vec<Vec<u32>> = Vec::new();
    for line in said.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        if key == "signature" {
            let (signature, processor) = (value.to_string(), cpu.name.to_string());
            all.push(Measured { signature, processor, instructions: 0, stack: 0, ops: BTreeMap::new() });
            outputs.push(Vec::new());
            continue;
        }
        let numbers = value.split(' ').map(str::parse::<u32>).collect::<Result<Vec<_>, _>>();
        let (Ok(numbers), Some(one), Some(outputs)) = (numbers, all.last_mut(), outputs.last_mut()) else { continue };
        let counted = |number: u32| u64::from(number) * instructions / ticks;
        match (key, numbers.as_slice()) {
            ("ticks", &[number]) => one.instructions = counted(number),
            ("stack", &[bytes]) => one.stack = bytes,
            ("output", &[hash]) => outputs.push(hash),
            ("op", &[index, number]) => drop(one.ops.insert(index, counted(number))),
            _ => continue,
        }
    }
    let names = |measured: &Measured, run: &Run| measured.signature == run.signature;
    let whole = all.len() == runs.len() && all.iter().zip(runs).all(|(one, run)| names(one, run) && one.instructions > 0);
    ensure!(whole, "the run in QEMU ended early: {said}");
    for (run, outputs) in runs.iter().zip(&outputs) {
        ensure!(run.outputs == *outputs, "the outputs of {:?} on a {} are not those of the host", run.signature, cpu.name);
    }
    for one in &all {
        let sum: u64 = one.ops.values().sum();
        ensure!(sum <= one.instructions.saturating_mul(2), "{:?} takes more instructions than the board's clock can count", one.signature);
    }
    Ok(all)
}
