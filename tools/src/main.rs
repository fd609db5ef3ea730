//! The tasks of `cargo xtask` that link gradlet. `xtask` starts this program with its own command line.

extern crate alloc;

mod bench;
mod bits;
mod c;
mod cycles;
mod demo;
mod helium;
mod measure;
mod models;
mod projects;
mod ptx;
#[allow(dead_code)]
#[path = "../../tests/src/random.rs"]
mod random;
mod replacement;
mod size;
mod slices;
mod targets;
mod telemetry;

use anyhow::Result;
use clap::Parser;
use gradlet_tools::firmware;
use std::process::ExitCode;
use xtask::cli::{Check, Race, Tool, Tools};
use xtask::setup;

fn main() -> ExitCode {
    match run(Tools::parse().tool) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(tool: Tool) -> Result<()> {
    match tool {
        Tool::Demo { json, logdir, update } => demo::run(json.as_deref(), logdir.as_deref(), update),
        Tool::Size { json, update } => size::run(json.as_deref(), update),
        Tool::Bench { race: Race::Train(options) } => bench::train::run(&options),
        Tool::Bench { race: Race::Inference(options) } => bench::inference::run(&options),
        Tool::Bench { race: Race::Data(options) } => bench::data::run(&options),
        Tool::Bench { race: Race::Checkpoint(options) } => bench::checkpoint::run(&options),
        Tool::Bench { race: Race::Summary(options) } => bench::summary::run(&options),
        Tool::Bench { race: Race::Cuda(options) } => bench::cuda::run(&options),
        Tool::Firmware { names, target, model, run } => firmware::task(&names, &target, model.as_deref(), run.as_deref()),
        Tool::Bits { targets } => targets::run(&targets),
        Tool::Ptx { check } => ptx::run(check),
        Tool::Check { check } => self::check(check),
    }
}

fn check(check: Check) -> Result<()> {
    let toolchain = &setup::ensure()?;
    match check {
        Check::Harness => firmware::check(toolchain),
        Check::BitsMlp => bits::check(toolchain, "mlp"),
        Check::BitsLstm => bits::check(toolchain, "lstm"),
        Check::BitsEager => bits::check_eager(toolchain),
        Check::BitsRestart => bits::check_restart(toolchain),
        Check::BitsTargets => targets::run(&[]),
        Check::Slices => slices::check(toolchain),
        Check::Models => replacement::check_two(toolchain).and_then(|()| replacement::check_update(toolchain)),
        Check::Helium => helium::check(),
        Check::Hostile => bits::check_hostile(toolchain),
        Check::Telemetry => telemetry::check(toolchain),
        Check::C => c::check(toolchain),
        Check::Projects => projects::check(),
        Check::Measure => measure::check(toolchain),
        Check::Size => size::check(),
        Check::Learning => {
            println!("{}", demo::learning(toolchain)?);
            Ok(())
        }
    }
}
