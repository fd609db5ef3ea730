//! `cargo xtask bits`: trains small models on every emulated processor, and compares the bits with the host's.

use crate::{bits, models};
use anyhow::{Context, Result, ensure};
use gradlet::runtime::telemetry::{Decoder, Frame};
use gradlet_tools::firmware::{self, Firmware};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use xtask::boards::{TARGETS, Target};
use xtask::setup;

/// Training steps between two saves, and number of saves. The firmware restarts after each save.
const SAVES: [u32; 2] = [50, 2];
const LOG: &str = "bits.out";
const LIMIT: Duration = Duration::from_secs(300);

/// Runs `cargo xtask bits`: on the named targets, or on all.
pub fn run(names: &[String]) -> Result<()> {
    let chosen: Vec<&Target> = match names {
        [] => TARGETS.iter().collect(),
        names => names.iter().map(|name| firmware::find(name)).collect::<Result<_>>()?,
    };
    let (mut passed, mut failed) = (0, 0);
    for target in chosen {
        let start = Instant::now();
        match check(target) {
            Ok(None) => {}
            Ok(Some(models)) => {
                passed += models;
                println!("{:<9} {models} models, the host's bits, in {:.0} s", target.name, start.elapsed().as_secs_f32());
            }
            Err(error) => {
                failed += 1;
                println!("{:<9} FAILED: {error:#}", target.name);
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    ensure!(failed == 0, "a processor computes other bits than the host");
    Ok(())
}

/// Trains the models that fit on `target`. Returns their number, or `None` if there is no Rust for the target.
fn check(target: &'static Target) -> Result<Option<usize>> {
    let toolchain = match setup::ensure_target(target)? {
        Ok(toolchain) => toolchain,
        Err(why) => {
            println!("{:<9} skipped: {why}", target.name);
            return Ok(None);
        }
    };
    // A microbit has 16 KiB of RAM.
    let small: &[&str] = if target.board == "microbit" { &["mlp"] } else { &["mlp", "cnn", "lstm"] };
    let artifact = models::small(small)?;
    let folder = models::write(&format!("bits-{}", target.name), &artifact)?;
    let firmware = firmware::build_for(&toolchain, target, "restart", Some(&folder))?;
    small.iter().try_for_each(|model| same_bits(&firmware, &folder, &artifact, model).with_context(|| format!("the model {model}")))?;
    Ok(Some(small.len()))
}

/// Trains `model` over the restarts. Fails if a loss in the firmware's file or in its telemetry, or a variable, differs from the host's.
fn same_bits(firmware: &Firmware, folder: &Path, artifact: &[u8], model: &str) -> Result<()> {
    let [steps, saves] = SAVES;
    let host = bits::host(artifact, model, steps * saves)?;
    let (losses, variables) = host.split_at(4 * (steps * saves) as usize);
    let words = [model, &steps.to_string(), &saves.to_string(), LOG];
    let mut bytes = Vec::new();
    let run = firmware::run_with_uart(firmware, folder, &words, LIMIT, &mut |more| bytes.extend(more))?.ok()?;
    ensure!(run.number("restarts")? == u64::from(saves), "the firmware did not restart after each save");
    let steps = losses.chunks_exact(4).zip(0u32..).flat_map(|(loss, step)| [&step.to_le_bytes(), loss].concat());
    let expected: Vec<u8> = steps.chain(variables.iter().copied()).collect();
    ensure!(fs::read(folder.join(LOG))? == expected, "the losses or the variables differ from the host's");
    ensure!(told(&bytes) == losses, "the telemetry has other losses than the host");
    Ok(())
}

/// Returns the bytes of the losses in the frames.
fn told(bytes: &[u8]) -> Vec<u8> {
    let mut losses = Vec::new();
    Decoder::new([0; 256]).feed(bytes, &mut |received| {
        if let Frame::Scalar { value, .. } = received.frame {
            losses.extend(value.to_le_bytes());
        }
    });
    losses
}
