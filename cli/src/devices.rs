//! The command `gradlet devices`.

use crate::print;
use anyhow::Result;
use clap::Args;
use gradlet::cuda::Driver;
use std::fmt::Write;

/// List the devices that compute: the CPU, and NVIDIA GPUs
///
/// If there is no GPU, the last line states the reason.
#[derive(Args)]
#[command(after_help = "Example:\n  gradlet devices")]
pub struct Devices;

impl Devices {
    pub fn run(&self) -> Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut text = format!("CPU:0  {cores} cores\n");
        match Driver::load().and_then(|driver| Ok((driver.gpus()?, driver))) {
            Ok((gpus, driver)) => {
                let mut names = (0..).map(|index| format!("GPU:{index}"));
                for gpu in &gpus {
                    let name = if gpu.is_supported() { names.next().unwrap_or_default() } else { "unsupported".into() };
                    let shared = if gpu.is_integrated() { " shared with the CPU" } else { "" };
                    writeln!(text, "{name}  {gpu:?}{shared}; {driver}")?;
                }
            }
            Err(error) => writeln!(text, "no GPU: {error}")?,
        }
        print(&text)
    }
}
