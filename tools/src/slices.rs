//! Checks that runs in slices give the bits of whole runs and leave time for a sensor and a watchdog, with RTIC and with embassy too.

use crate::{bits, models};
use anyhow::{Context, Result, ensure};
use gradlet_tools::firmware;
use std::fs;
use std::time::Duration;
use xtask::setup::Toolchain;

const LIMIT: Duration = Duration::from_secs(120);
/// Budget of a slice in the firmwares, and the most that a slice may take, in instructions.
const BUDGET: [u64; 2] = [20_000, 25_000];
/// The most instructions that all slices of a run may take, in percent of a whole run. Each slice begins with the set-up of a kernel.
const MOST: u64 = 113;
/// Training steps of each run.
const STEPS: u32 = 20;

/// Fails if a firmware that runs in slices loses a sample, starves the watchdog, computes other bits, or takes much longer.
pub fn check(toolchain: &Toolchain) -> Result<()> {
    for spec in ["mlp:64-32-10", "cnn"] {
        let folder = models::write("slices", &models::of(spec, &["infer", "train"])?)?;
        let firmware = firmware::build(toolchain, "slices", Some(&folder))?;
        let run = firmware::run(&firmware, &folder, &[&STEPS.to_string()], LIMIT)?.ok()?;
        let [samples, taken, lost] = ["samples", "samples_taken", "samples_lost"].map(|key| run.number(key));
        let (samples, taken) = (samples?, taken?);
        ensure!(lost? == 0 && samples - taken <= 2 && samples > 0, "{spec}: {taken} of {samples} samples were taken");
        for signature in ["infer", "train_step"] {
            let whole = run.number(&format!("instructions_{signature}"))?;
            let slices = run.number(&format!("instructions_{signature}_slices"))?;
            let longest = run.number(&format!("longest_slice_{}", signature.trim_end_matches("_step")))?;
            let [budget, most] = BUDGET;
            println!("{spec} {signature}: {whole} instructions, in slices {slices}, the longest {longest} for a budget of {budget}");
            ensure!(longest <= most, "{spec} {signature}: a slice of {longest} instructions for a budget of {budget}");
            ensure!(slices * 100 <= whole * MOST, "{spec} {signature}: {slices} instructions in slices, but {whole} as a whole");
        }
        let starved = firmware::run(&firmware, &folder, &[&STEPS.to_string(), "whole"], LIMIT)?;
        ensure!(starved.console.contains("broken=watchdog"), "{spec}: whole runs do not starve the watchdog:\n{}", starved.console);
    }
    ["rtic", "embassy"].iter().try_for_each(|name| beside_tasks(toolchain, name))
}

/// Fails if a loss of the firmware `name`, which trains beside other tasks, differs from the host's.
fn beside_tasks(toolchain: &Toolchain, name: &str) -> Result<()> {
    let artifact = models::of("mlp:64-32-10", &["infer", "train"])?;
    let folder = models::write(name, &artifact)?;
    let firmware = firmware::build(toolchain, name, Some(&folder))?;
    let run = firmware::run(&firmware, &folder, &[&STEPS.to_string()], LIMIT)?.ok()?;
    let losses = run.console.lines().filter_map(|line| line.strip_prefix("loss_bits="));
    let losses: Vec<u32> = losses.map(str::parse).collect::<Result<_, _>>().context("a loss is not a number")?;
    let host = bits::host(&fs::read(folder.join("model.grdl"))?, "train", STEPS)?;
    let host: Vec<u32> =
        host.chunks_exact(4).take(STEPS as usize).map(|four| u32::from_le_bytes(four.try_into().unwrap_or_default())).collect();
    ensure!(losses == host, "the firmware {name} computed other losses than the host");
    ensure!(run.number("samples")? > 0, "the firmware {name} took no samples");
    println!("{name}: {STEPS} losses, the host's bits, beside {} samples", run.number("samples")?);
    Ok(())
}
