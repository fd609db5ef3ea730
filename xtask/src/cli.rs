//! The tasks and their options, once for `cargo xtask` and for the tools that it starts.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Builds, tests and shows gradlet.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub struct Cli {
    /// The task.
    #[command(subcommand)]
    pub task: Task,
}

/// Every task of `cargo xtask`.
#[derive(Subcommand)]
pub enum Task {
    /// Install what is missing: a Rust toolchain for the Cortex-M4F, and QEMU. The other tasks do this too.
    Setup,
    /// Run all tests: format, lints, docs, tests, firmware, golden vectors, bits, sizes. Stops at the first failure.
    Test {
        /// Only the steps whose names contain one of these; `all` runs every step, and each fuzz target for a minute.
        #[arg(value_name = "STEP")]
        steps: Vec<String>,
    },
    /// Make the Rust of TensorFlow's messages (std-host/src/formats/proto) anew.
    Proto,
    /// The tasks of the tools.
    #[command(flatten)]
    Tool(Tool),
    /// The tasks of the suite.
    #[command(flatten)]
    Suite(Suite),
}

/// The program of the suite (tests/src/bin/golden.rs).
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub struct SuiteTasks {
    /// The task.
    #[command(subcommand)]
    pub task: Suite,
}

/// The tasks of the suite.
#[derive(Subcommand)]
pub enum Suite {
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
    /// The step of `cargo xtask test`: the golden vectors, and the committed table of what runs where.
    #[command(hide = true)]
    CheckGolden,
}

/// The tools, which link gradlet.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub struct Tools {
    /// The task.
    #[command(subcommand)]
    pub tool: Tool,
}

/// The tasks of the tools.
#[derive(Subcommand)]
pub enum Tool {
    /// Train on the host, export, learn on the emulated device: the main job, from end to end.
    Demo {
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Write what the device tells as events into this folder, for TensorBoard.
        #[arg(long, value_name = "DIR")]
        logdir: Option<PathBuf>,
    },
    /// Measure flash, RAM and instructions of the firmwares, beside the committed figures.
    Size {
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Make these figures the committed ones (tests/sizes.json).
        #[arg(long)]
        update: bool,
    },
    /// Measure gradlet beside TensorFlow, taking turns, and print the ratios.
    Bench {
        /// The race to run.
        race: Race,
        /// The options of every race.
        #[command(flatten)]
        options: BenchOptions,
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
    /// A step of `cargo xtask test`.
    #[command(hide = true)]
    Check {
        /// Which one.
        check: Check,
    },
}

/// A race against TensorFlow.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Race {
    /// Training steps, and the memory that they take. DIR has the MNIST files (data/mnist10k).
    Train,
    /// Reading, writing and making batches of data. DIR is a scratch folder: about a GiB is made in it, and stays there
    /// (target/bench-data).
    Data,
    /// Saving and restoring a GiB of variables. DIR is for the checkpoints, of 4 GiB (target/bench-checkpoint).
    Checkpoint,
    /// Writing scalars to event files. DIR is for these (target/bench-summary).
    Summary,
}

/// The options of every race.
#[derive(Args)]
pub struct BenchOptions {
    /// The folder for the data; each race has one of its own.
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// How often to take turns: 11 times for `train`, 7 times for the others.
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// A Python that has TensorFlow; without one, an environment is made under target/.
    #[arg(long, value_name = "PYTHON", env = "TENSORFLOW_PYTHON")]
    pub python: Option<PathBuf>,
    /// Also write the figures to this file, as one JSON object.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A step of the tests that links gradlet.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// The instruction counter is right.
    Harness,
    /// The bits of an MLP's training steps.
    BitsMlp,
    /// The bits of an LSTM's training steps.
    BitsLstm,
    /// The bits of a model that the device builds itself.
    BitsEager,
    /// The bits of training through restarts.
    BitsRestart,
    /// The device's telemetry.
    Telemetry,
    /// Sizes beside bars and committed figures.
    Size,
    /// Builds a firmware that learns for half a minute, and prints the command that runs it, a word a line.
    Learning,
}
