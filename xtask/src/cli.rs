//! The tasks and their options, for `cargo xtask` and for the tools that it starts.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Builds, tests and demonstrates gradlet.
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
    /// Install the missing tools: a Rust toolchain for the Cortex-M4F, and QEMU. The other tasks do this too.
    Setup,
    /// Run all tests: format, lints, docs, tests, firmware, golden vectors, bits, sizes. Stop at the first failure.
    Test {
        /// Run only the steps whose names contain one of these words. `all` runs every step, each fuzz
        /// target for a minute, and tests with tensors of 5 GiB.
        #[arg(value_name = "STEP")]
        steps: Vec<String>,
    },
    /// Write the list of gradlet's public names (tests/public-names.txt).
    Names,
    /// Generate the Rust code of TensorFlow's protobuf messages (std-host/src/formats/proto).
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
    /// Run golden vectors on all runtimes, or on some.
    Golden {
        /// Run only this runtime: eager, compiled, cpu, hiding, cuda, device or cortex-m. The option can be repeated. `cuda` is an
        /// emulated GPU, or a real one with GRADLET_GPU=real in the environment.
        #[arg(long = "runtime", value_name = "NAME")]
        runtimes: Vec<String>,
        /// The processor of the runtime cortex-m: one of those of `cargo xtask firmware`.
        #[arg(long, value_name = "TARGET", default_value = "m4f")]
        target: String,
        /// Folders of cases. The default is tests/fixtures; with --runtime, only its cases that run on every runtime.
        #[arg(value_name = "DIR")]
        folders: Vec<PathBuf>,
    },
    /// Write the table of the element types and runtimes of each op (COVERAGE.md).
    Coverage,
    /// Write the table of the occupancy and the arithmetic intensity of the GPU's kernels (cuda-backend/ptx/roofline.txt).
    Roofline,
    /// The step of `cargo xtask test`: runs the golden vectors, and checks the committed COVERAGE.md.
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
    /// Train on the host, export, and train further on the emulated device: the complete workflow.
    Demo {
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Write the device's telemetry to this folder as events for TensorBoard.
        #[arg(long, value_name = "DIR")]
        logdir: Option<PathBuf>,
        /// Replace the committed figures (docs/demo.txt) with these. The README shows them.
        #[arg(long)]
        update: bool,
    },
    /// Measure flash, RAM and instructions of the firmwares, and compare them with the committed figures.
    Size {
        /// Also write the figures to this file, as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Replace the committed figures (tests/sizes.json) with these.
        #[arg(long)]
        update: bool,
    },
    /// Measure gradlet and another library in turns, and print the ratios.
    Bench {
        /// The race to run.
        #[command(subcommand)]
        race: Race,
    },
    /// Build firmwares and print their paths.
    Firmware {
        /// Names of the firmwares: the files in boards/emulated/src/bin. Or folders of firmware projects, such as `gradlet new` writes.
        #[arg(value_name = "BIN", required = true)]
        names: Vec<String>,
        /// The processor: `m4f`, `m0`, `m0-mps2`, `m3`, `m7`, `m33`, `m55`, `rv32imac` or `rv32imc`.
        #[arg(long, value_name = "TARGET", default_value = "m4f")]
        target: String,
        /// The folder with model.grdl and model.rs, as `gradlet export` writes them.
        #[arg(long, value_name = "DIR", env = "GRADLET_FIRMWARE_DIR")]
        model: Option<PathBuf>,
        /// Run them under QEMU with these arguments. A project is run by the runner that it names.
        #[arg(long, value_name = "ARGS", num_args = 0.., allow_hyphen_values = true)]
        run: Option<Vec<String>>,
    },
    /// Train on every emulated processor, with restarts and telemetry, and compare the bits with the host's.
    Bits {
        /// Only these processors, such as `m0` or `rv32imc`.
        #[arg(value_name = "TARGET")]
        targets: Vec<String>,
    },
    /// Compile the GPU's kernels (cuda-backend/kernels) to PTX, and write the table of their registers. This needs no GPU.
    Ptx {
        /// Write nothing. Name the committed files (cuda-backend/ptx) that differ.
        #[arg(long)]
        check: bool,
    },
    /// A step of `cargo xtask test`.
    #[command(hide = true)]
    Check {
        /// The step.
        check: Check,
    },
}

/// A race against TensorFlow, or on a GPU against PyTorch and JAX.
#[derive(Subcommand)]
pub enum Race {
    /// Training steps, and their memory. DIR has the MNIST files (data/mnist10k).
    Train(BenchOptions),
    /// Run `.tflite` files on one thread, beside TensorFlow Lite with XNNPACK. DIR is a folder with the files (tests/fixtures/tinyml).
    Inference(BenchOptions),
    /// Read and write data, and make batches. DIR is a scratch folder for about 1 GiB of data, which is kept (target/bench-data).
    Data(BenchOptions),
    /// Save and restore 1 GiB of variables. DIR is a folder for the checkpoints, of 4 GiB (target/bench-checkpoint).
    Checkpoint(BenchOptions),
    /// Write scalars to event files. DIR is a folder for these (target/bench-summary).
    Summary(BenchOptions),
    /// Work on the first NVIDIA GPU: products, memory-bound kernels, training steps and latencies. PyTorch and JAX take part if installed.
    ///
    /// The programs take turns. The table has medians, their ratios, and the bars that gradlet should reach. The environment variable
    /// CUDA_VISIBLE_DEVICES chooses the GPU. The chapter "NVIDIA GPUs" of the book explains the rows.
    Cuda(CudaOptions),
}

/// The options of the races against TensorFlow.
#[derive(Args)]
pub struct BenchOptions {
    /// Folder for the data. Each race has its own default.
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Number of rounds. The default is 11 for `train`, and 7 for the other races.
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// A Python that has TensorFlow. The default is an environment under target/, which is created if missing.
    #[arg(long, value_name = "PYTHON", env = "TENSORFLOW_PYTHON")]
    pub python: Option<PathBuf>,
    /// Also write the figures to this file, as one JSON object.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The options of the race on a GPU.
#[derive(Args)]
pub struct CudaOptions {
    /// Measure only the rows whose names contain one of these words, such as `gemm` or `cnn/tf32`.
    #[arg(value_name = "ROW")]
    pub rows: Vec<String>,
    /// Number of rounds.
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub rounds: usize,
    /// A Python that has PyTorch, JAX or both. It needs no other packages.
    #[arg(long, value_name = "PYTHON", env = "GRADLET_PYTHON", default_value = "python3")]
    pub python: PathBuf,
    /// Number of models that the peers prepare at the same time, each in a process of its own, before they are measured. Peers that
    /// compile are then ready sooner. Each process needs about 1 GB of the GPU's memory.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub jobs: usize,
    /// Most seconds that a peer may prepare a row.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub patience: u64,
    /// Give every row tiny sizes. This shows that all programs work; the figures mean nothing.
    #[arg(long)]
    pub quick: bool,
    /// Write the table, the figures and a plot to docs/gpu/, in files that are named after the GPU.
    #[arg(long, conflicts_with_all = ["quick", "rows"])]
    pub write: bool,
    /// Also write the figures to this file, as one JSON object.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A step of the tests that links gradlet.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// Checks the instruction counter.
    Harness,
    /// Compares the bits of an MLP's training steps with the host's.
    BitsMlp,
    /// Compares the bits of an LSTM's training steps with the host's.
    BitsLstm,
    /// Compares the bits of a model that the device builds itself with the host's.
    BitsEager,
    /// Compares the bits of training over several restarts with the host's.
    BitsRestart,
    /// Compares the bits of small models' training steps on every processor with the host's.
    BitsTargets,
    /// Runs in slices beside a sensor and a watchdog, and in tasks of RTIC and embassy.
    Slices,
    /// Runs two models in turn, and replaces a model while the device runs.
    Models,
    /// Compares the kernels for processors with Helium with the portable ones.
    Helium,
    /// Resets the device at random instructions, and feeds it hostile data.
    Hostile,
    /// Checks the device's telemetry.
    Telemetry,
    /// Checks the C API: a firmware in C, hostile calls, and the library of this machine.
    C,
    /// Makes a project for every board by `gradlet new`, builds it, and runs the one for the emulated board.
    Projects,
    /// Measures models by `gradlet inspect --measure`.
    Measure,
    /// Compares sizes with their limits and with the committed figures.
    Size,
    /// Builds a firmware that learns for half a minute, and prints the command that runs it, one word per line.
    Learning,
}
