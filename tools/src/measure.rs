//! The check of `gradlet inspect --measure`: what it prints for a model, compared with the measurements of a firmware.

use crate::models;
use anyhow::{Context, Result, ensure};
use gradlet::artifact::firmware::Cpu;
use gradlet_tools::firmware;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use xtask::boards::{self, M4F};
use xtask::setup::{self, Toolchain};
use xtask::shell;

const LIMIT: Duration = Duration::from_secs(120);
const MODEL: &str = "tinyml/str_ww_ref_model.tflite";
/// Instructions and bytes of stack by which the two firmwares may differ: the compiler inlines other functions in each.
const INSTRUCTIONS: u64 = 2_000;
const STACK: u64 = 300;

/// Measures a model by the command, whose own check compares the outputs with the host's. Compares the sum over the ops with the whole, and
/// the whole with firmware `infer`. Then measures a training step, on another processor.
pub fn check(toolchain: &Toolchain) -> Result<()> {
    let (folder, _) = models::import(MODEL, Cpu::Any, None)?;
    let signatures = measure(toolchain, &folder.join("model.grdl"), "cortex-m4")?;
    let [infer] = signatures.as_slice() else { anyhow::bail!("{MODEL} has {} signatures", signatures.len()) };
    let firmware = firmware::build_for(toolchain, &M4F, "infer", Some(&folder))?;
    let run = firmware::run(&firmware, &folder, &["infer.out"], LIMIT)?.ok()?;
    let [instructions, stack] = ["instructions_infer", "stack_infer"].map(|key| run.number(key));
    let (instructions, stack) = (instructions?, stack?);
    let [own, own_stack] = [infer.whole, infer.stack];
    ensure!(own.abs_diff(instructions) < INSTRUCTIONS, "the command counts {own} instructions, and the firmware {instructions}");
    ensure!(own_stack.abs_diff(stack) < STACK, "the command counts {own_stack} bytes of stack, and the firmware {stack}");
    println!("{MODEL}: {own} instructions and {own_stack} bytes of stack by the command, {instructions} and {stack} by the firmware");

    let Ok(toolchain) = setup::ensure_target(firmware::find("m55")?)? else { return Ok(()) };
    let signatures = measure(&toolchain, &folder.join("model.grdl"), "cortex-m55")?;
    ensure!(signatures[0].whole * 3 < own * 2, "the kernels for Helium take {} instructions", signatures[0].whole);
    let folder = models::export("mlp")?;
    let signatures = measure(&toolchain, &folder.join("model.grdl"), "cortex-m55")?;
    ensure!(signatures.len() == 2, "the model has {} signatures, not infer and train", signatures.len());
    Ok(())
}

/// A signature's measurement.
struct Measured {
    whole: u64,
    stack: u64,
}

/// Runs `gradlet inspect --measure` with an artifact. Checks that the sum over the ops is nearly the whole.
fn measure(toolchain: &Toolchain, artifact: &Path, cpu: &str) -> Result<Vec<Measured>> {
    let gradlet = std::env::current_exe()?.with_file_name(format!("gradlet{}", std::env::consts::EXE_SUFFIX));
    let mut inspect = Command::new(gradlet);
    inspect.arg("inspect").arg(artifact).args(["--json", "--measure", "--cpu", cpu, "--core"]).arg(shell::root().join("core"));
    inspect.env("XDG_CACHE_HOME", boards::folder("measure")?).envs(toolchain.variables().iter().copied());
    // Shares the compiled libraries of the firmwares. A cargo before 1.91 ignores this, and compiles them again.
    inspect.env("CARGO_BUILD_BUILD_DIR", boards::builds());
    let output = inspect.output()?;
    ensure!(output.status.success(), "`{}` failed: {}", shell::line(&inspect), String::from_utf8_lossy(&output.stderr));
    let description: Value = serde_json::from_slice(&output.stdout)?;
    let signatures = description["signatures"].as_array().context("there are no signatures")?;
    signatures.iter().map(|signature| measured(signature).with_context(|| format!("{} on a {cpu}", signature["name"]))).collect()
}

fn measured(signature: &Value) -> Result<Measured> {
    let number = |value: &Value| value.as_u64().with_context(|| format!("{value} is no number"));
    let measured = &signature["measured"];
    let ops = measured["ops"].as_object().context("there are no ops")?;
    let sum = ops.values().map(number).sum::<Result<u64>>()?;
    let (whole, stack) = (number(&measured["instructions"])?, number(&measured["stack_bytes"])?);
    ensure!(whole.abs_diff(sum) * 20 < whole, "the ops take {sum} instructions, and the whole {whole}");
    let count = signature["instructions"].as_array().map_or(0, Vec::len);
    ensure!(ops.len() == count, "{} of {count} ops have counts", ops.len());
    Ok(Measured { whole, stack })
}
