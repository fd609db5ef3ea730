//! `cargo xtask …`: sets up the machine, runs the steps of the tests, and starts the tools, which link gradlet.

mod log;
mod names;
mod packages;
mod steps;
mod test;

use anyhow::Result;
use clap::Parser;
use std::process::{Command, ExitCode};
use xtask::cli::{Cli, Task, Tool};
use xtask::jetson::Jetson;
use xtask::{setup, shell};

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Setup => ready(),
        Task::Test { steps } => test::run(&steps),
        Task::Names => shell::run(&mut steps::docs()).and_then(|()| names::update()),
        Task::Proto => shell::run(shell::cargo().args(["run", "--package", "gradlet-proto"])),
        Task::Tool(Tool::Bench { .. } | Tool::Ptx { .. }) => forward(shell::tools("run")),
        Task::Tool(_) => setup::ensure().and_then(|_| forward(shell::tools("run"))),
        Task::Suite(_) => setup::ensure().and_then(|_| forward(shell::suite("run"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn ready() -> Result<()> {
    let toolchain = setup::ensure()?;
    match Jetson::ensure()? {
        Ok(_) => println!("ready: {toolchain}, qemu-system-arm, qemu-aarch64"),
        Err(why) => println!("ready: {toolchain}, qemu-system-arm; without tests for a Jetson's CPU: {why}"),
    }
    Ok(())
}

/// Builds and runs a program that links gradlet, with this program's own arguments.
fn forward(mut command: Command) -> Result<()> {
    shell::run(command.arg("--").args(std::env::args_os().skip(1)))
}
