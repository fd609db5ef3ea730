//! The `gradlet` command. It trains, exports, runs and inspects models, monitors devices, and handles checkpoints, event files and
//! TFRecord files.

mod ckpt;
mod convert;
mod devices;
mod export;
mod firmware;
mod import;
mod inspect;
mod measure;
mod monitor;
mod new;
mod run;
mod samples;
mod summary;
mod tfrecord;
mod train;

use clap::{Args, Parser, Subcommand};
use gradlet::applications::ModelSpec;
use gradlet::datasets::digits;
use std::path::PathBuf;
use std::process::ExitCode;

/// Train on the host, export one file, keep learning on a microcontroller.
#[derive(Parser)]
#[command(version, after_help = EXIT_CODES, after_long_help = concat!(
    "Examples:\n",
    "  gradlet train cnn --data data/mnist10k --weights cnn.safetensors\n",
    "  gradlet export cnn --weights cnn.safetensors --output cnn.grdl --rust model.rs\n",
    "  gradlet import kws.tflite --output kws.grdl --rust model.rs\n",
    "  gradlet convert cnn.grdl --output cnn.tflite\n",
    "  gradlet run cnn.grdl infer --input x=digits:data/mnist10k:0\n",
    "  gradlet inspect cnn.grdl --svg arena.svg\n",
    "  gradlet monitor --port /dev/ttyUSB0 --logdir logs\n",
    "  gradlet new --board pico2 --model cnn.grdl my-firmware\n",
    "  gradlet devices\n",
    "  gradlet ckpt inspect training/ckpt-7\n",
    "  gradlet summary inspect logs\n",
    "  gradlet tfrecord inspect train.tfrecord\n\n",
    "Exit codes: 0 success, 1 an error (one line on stderr), 2 wrong usage.\n",
    "NO_COLOR in the environment turns colours off; output that is not to a terminal is plain anyway."
))]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print only results, without progress
    #[arg(long, short, global = true)]
    quiet: bool,
}

const EXIT_CODES: &str = "Exit codes: 0 success, 1 an error, 2 wrong usage.";

#[derive(Subcommand)]
enum Command {
    Train(train::Train),
    Export(export::Export),
    Import(import::Import),
    Convert(convert::Convert),
    Run(run::Run),
    Inspect(inspect::Inspect),
    Monitor(monitor::Watch),
    New(new::New),
    Devices(devices::Devices),
    #[command(subcommand)]
    Ckpt(ckpt::Ckpt),
    #[command(subcommand)]
    Summary(summary::Summary),
    #[command(subcommand)]
    Tfrecord(tfrecord::TfRecord),
}

/// The model and the seed of its initial weights.
#[derive(Args)]
struct Model {
    /// `cnn`, `mlp` (784-100-10), or units as in `mlp:64-32-10`
    #[arg(value_name = "MODEL")]
    model: ModelSpec,
    /// Seed of the initial weights and of the order of the digits
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// The source of the digits.
#[derive(Args)]
struct Data {
    /// Folder with the four IDX files of MNIST, plain or .gz
    #[arg(long, value_name = "DIR", default_value = "data/mnist10k")]
    data: PathBuf,
    /// Use only the first N digits for training and the first N for testing
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Rotate every digit by 90° counter-clockwise
    #[arg(long)]
    turned: bool,
}

impl Data {
    fn load(&self) -> anyhow::Result<(digits::Digits, digits::Digits)> {
        let (train, test) = digits::load(&self.data)?;
        let some = |digits: digits::Digits| {
            let digits = self.limit.map_or(digits.clone(), |limit| digits.first(limit));
            if self.turned { digits.turned() } else { digits }
        };
        Ok((some(train), some(test)))
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Train(train) => train.run(cli.quiet),
        Command::Export(export) => export.run(cli.quiet),
        Command::Import(import) => import.run(cli.quiet),
        Command::Convert(convert) => convert.run(cli.quiet),
        Command::Run(run) => run.run(),
        Command::Inspect(inspect) => inspect.run(cli.quiet),
        Command::Monitor(monitor) => monitor.run(cli.quiet),
        Command::New(new) => new.run(cli.quiet),
        Command::Devices(devices) => devices.run(),
        Command::Ckpt(ckpt) => ckpt.run(cli.quiet),
        Command::Summary(summary) => summary.run(cli.quiet),
        Command::Tfrecord(tfrecord) => tfrecord.run(cli.quiet),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True if the reader of stdout, such as `head`, closed the pipe.
fn closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Writes results to stdout.
fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}
