//! `cargo xtask …`: everything that building, testing and showing gradlet takes.

extern crate alloc;

mod bench;
mod bits;
mod demo;
mod elf;
mod firmware;
mod golden;
mod models;
mod proto;
mod setup;
mod shell;
mod size;
mod telemetry;
mod test;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Builds, tests and shows gradlet.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing: a Rust toolchain for the Cortex-M4F, and QEMU. The other tasks do this too.
    Setup,
    /// Train on the host, export, learn on the emulated device: the main job, from end to end.
    Demo {
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Write what the device tells as events into this folder, for TensorBoard.
        #[arg(long, value_name = "DIR")]
        logdir: Option<PathBuf>,
    },
    /// Run all tests: format, lints, docs, tests, firmware, golden vectors, bits, sizes. Stops at the first failure.
    Test {
        /// Only the steps whose names contain one of these.
        #[arg(value_name = "STEP")]
        steps: Vec<String>,
    },
    /// Run golden vectors on every runtime, or on some.
    Golden {
        /// Only this runtime, and others that are named so: eager, compiled, cpu, device, cortex-m.
        #[arg(long = "runtime", value_name = "NAME")]
        runtimes: Vec<String>,
        /// Folders of cases; without any, those under tests/fixtures: with some runtimes only, the cases that are for all.
        #[arg(value_name = "DIR")]
        folders: Vec<PathBuf>,
    },
    /// Write the table of which op runs in which element type on which runtime (COVERAGE.md).
    Coverage,
    /// Make the Rust of TensorFlow's messages (std-host/proto) anew.
    Proto,
    /// Measure flash, RAM and instructions of the firmwares, beside the committed figures.
    Size {
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Make these figures the committed ones (tests/sizes.json).
        #[arg(long)]
        update: bool,
    },
    /// Time training steps beside TensorFlow's, taking turns, and print the ratios.
    Bench {
        /// The folder with the MNIST files.
        #[arg(value_name = "DIR", default_value = "data/mnist10k")]
        folder: PathBuf,
        /// How often to take turns.
        #[arg(long, value_name = "N", default_value_t = 11)]
        rounds: usize,
        /// A Python that has TensorFlow; without one, an environment is made under target/.
        #[arg(long, value_name = "PYTHON", env = "TENSORFLOW_PYTHON")]
        python: Option<PathBuf>,
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Time saving and restoring a GiB of variables beside TensorFlow's, taking turns, and print the ratios and the memory.
    BenchCheckpoint {
        /// The folder for the checkpoints, of 4 GiB.
        #[arg(value_name = "DIR", default_value = "target/bench-checkpoint")]
        folder: PathBuf,
        /// How often to take turns.
        #[arg(long, value_name = "N", default_value_t = 7)]
        rounds: usize,
        /// A Python that has TensorFlow; without one, an environment is made under target/.
        #[arg(long, value_name = "PYTHON", env = "TENSORFLOW_PYTHON")]
        python: Option<PathBuf>,
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Time reading, writing and making batches of data beside TensorFlow's, taking turns, and print the ratios.
    BenchData {
        /// The scratch folder: the data are made in it, about a GiB, and stay there.
        #[arg(value_name = "DIR", default_value = "target/bench-data")]
        folder: PathBuf,
        /// How often to take turns.
        #[arg(long, value_name = "N", default_value_t = 7)]
        rounds: usize,
        /// A Python that has TensorFlow; without one, an environment is made under target/.
        #[arg(long, value_name = "PYTHON", env = "TENSORFLOW_PYTHON")]
        python: Option<PathBuf>,
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Time writing scalars to event files beside TensorFlow's, taking turns, and print how many a second there are.
    BenchSummary {
        /// The folder for the event files.
        #[arg(value_name = "DIR", default_value = "target/bench-summary")]
        folder: PathBuf,
        /// How often to take turns.
        #[arg(long, value_name = "N", default_value_t = 7)]
        rounds: usize,
        /// A Python that has TensorFlow; without one, an environment is made under target/.
        #[arg(long, value_name = "PYTHON", env = "TENSORFLOW_PYTHON")]
        python: Option<PathBuf>,
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Build firmwares and print where they lie.
    Firmware {
        /// Their names: the files in boards/mps2-an386/src/bin.
        #[arg(value_name = "BIN", required = true)]
        names: Vec<String>,
        /// The folder with model.grdl and model.rs, as `gradlet export` writes them.
        #[arg(long, value_name = "DIR", env = "GRADLET_FIRMWARE_DIR")]
        model: Option<PathBuf>,
        /// Run them under QEMU with these arguments.
        #[arg(long, value_name = "ARGS", num_args = 0.., allow_hyphen_values = true)]
        run: Option<Vec<String>>,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Setup => setup::ensure().map(|toolchain| println!("ready: {toolchain}, qemu-system-arm")),
        Task::Demo { json, logdir } => demo::run(json.as_deref(), logdir.as_deref()),
        Task::Test { steps } => test::run(&steps),
        Task::Golden { runtimes, folders } => golden::run(&runtimes, &folders),
        Task::Coverage => golden::write_coverage(),
        Task::Proto => proto::write(),
        Task::Size { json, update } => size::run(json.as_deref(), update),
        Task::Bench { folder, rounds, python, json } => bench::run(&folder, rounds, python.as_deref(), json.as_deref()),
        Task::BenchCheckpoint { folder, rounds, python, json } => {
            bench::checkpoint::run(&folder, rounds, python.as_deref(), json.as_deref())
        }
        Task::BenchData { folder, rounds, python, json } => bench::data::run(&folder, rounds, python.as_deref(), json.as_deref()),
        Task::BenchSummary { folder, rounds, python, json } => bench::summary::run(&folder, rounds, python.as_deref(), json.as_deref()),
        Task::Firmware { names, model, run } => firmware::task(&names, model.as_deref(), run.as_deref()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
