//! Checks the kernels for processors with Helium.

use crate::models;
use anyhow::{Result, ensure};
use gradlet::artifact::firmware::Cpu;
use gradlet_tools::firmware;
use std::time::Duration;
use xtask::setup;

const LIMIT: Duration = Duration::from_secs(300);
/// Models that together have all kernels, strides and paddings.
const MODELS: [&str; 4] = [
    "tinyml/kws_ref_model.tflite",
    "tinyml/vww_96_int8.tflite",
    "tinyml/pretrainedResnet_quant.tflite",
    "models_int16/transformer_int8.tflite",
];

/// Runs the firmware `helium` with each model. It compares kernels and runs in slices itself, and ends with failure if bits differ.
pub fn check() -> Result<()> {
    let target = firmware::find("m55")?;
    let toolchain = match setup::ensure_target(target)? {
        Ok(toolchain) => toolchain,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    for model in MODELS {
        let (folder, _) = models::import(model, Cpu::CortexM55, None)?;
        let firmware = firmware::build_for(&toolchain, target, "helium", Some(&folder))?;
        let run = firmware::run(&firmware, &folder, &[], LIMIT)?.ok()?;
        let counted = run.console.lines().filter(|line| !line.starts_with("stack"));
        println!("{model}: {}", counted.collect::<Vec<_>>().join(", "));
        let kernels = ["dense", "sums", "products", "squared_differences", "matrices"].map(|key| (key, 800));
        for (key, least) in [("convolutions", 1000), ("depthwise_convolutions", 800), ("slices", 100)].into_iter().chain(kernels) {
            ensure!(run.number(key)? >= least, "the firmware compared only {} {key}", run.number(key)?);
        }
    }
    Ok(())
}
