//! Benchmarks against TensorFlow: training steps, inference, pipelines, checkpoints and event files. On a GPU, against PyTorch and JAX. The
//! programs take turns on one machine.

pub mod checkpoint;
pub mod cuda;
pub mod data;
pub mod inference;
pub mod summary;
pub mod train;

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use xtask::cli::BenchOptions;
use xtask::setup::install_tensorflow;
use xtask::shell::{self, cargo};

/// Settings of a race between a gradlet program and a TensorFlow script.
struct Setting {
    /// Folder of the data.
    folder: PathBuf,
    /// Number of rounds. Each program has one turn per round.
    rounds: usize,
    /// Path of the built example, which is gradlet's program.
    program: PathBuf,
    /// Path of a Python with TensorFlow.
    python: PathBuf,
    /// Path of the script for TensorFlow.
    script: PathBuf,
}

impl Setting {
    /// Builds `example`, and finds or installs TensorFlow for `script`.
    fn new(options: &BenchOptions, folder: &str, rounds: usize, example: &str, script: &str) -> Result<Setting> {
        let folder = options.folder.clone().unwrap_or_else(|| shell::root().join(folder));
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let program = build(example)?;
        let python = options.python.clone().map_or_else(install_tensorflow, Ok)?;
        let script = write_script(&shell::root().join("target"), &format!("{example}.py"), script)?;
        Ok(Setting { folder, rounds: options.rounds.unwrap_or(rounds).max(1), program, python, script })
    }

    /// Starts gradlet's program.
    fn ours(&self, arguments: &[&str]) -> Result<Runner> {
        Runner::start(Command::new(&self.program).arg(&self.folder).args(arguments))
    }

    /// Starts TensorFlow's script.
    fn theirs(&self) -> Result<Runner> {
        Runner::start(Command::new(&self.python).arg(&self.script).arg(&self.folder))
    }

    /// Prints that round `round` is over.
    fn over(&self, round: usize) {
        eprint!("\rround {} of {}", round + 1, self.rounds);
        if round + 1 == self.rounds {
            eprintln!();
        }
    }
}

/// Writes a script to `folder`, which is created if missing, and returns the script's path.
fn write_script(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let script = folder.join(name);
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    Ok(script)
}

fn write_json(path: Option<&Path>, figures: &Map<String, Value>) -> Result<()> {
    match path {
        Some(path) => fs::write(path, serde_json::to_vec_pretty(figures)?).with_context(|| format!("cannot write {}", path.display())),
        None => Ok(()),
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Builds an example in release mode, and returns the path of its executable.
fn build(example: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release", "--package", "gradlet", "--features", "full", "--example", example, "--message-format", "json"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    anyhow::ensure!(output.status.success(), "cannot build {example}");
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let named = built.filter(|message| message["target"]["name"] == example);
    let path = named.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    path.with_context(|| format!("cargo did not report the path of {example}"))
}

/// Time in which a program answers.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A program has given no answer in so many seconds.
#[derive(Debug)]
struct Late(u64);

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no answer in {} s", self.0)
    }
}

impl std::error::Error for Late {}

/// A running program that answers requests.
struct Runner {
    /// The line with which the program said that it is ready, or nothing if nobody has waited for it.
    ready: String,
    child: Child,
    requests: ChildStdin,
    /// The lines of its standard output.
    answers: Receiver<String>,
}

impl Runner {
    /// Starts a program, and waits until it is ready.
    fn start(command: &mut Command) -> Result<Runner> {
        let mut runner = Runner::spawn(command)?;
        runner.ready = runner.answer(PATIENCE).with_context(|| format!("{} did not become ready", command.get_program().display()))?;
        Ok(runner)
    }

    /// Starts a program. Its first answer is the line that it is ready.
    fn spawn(command: &mut Command) -> Result<Runner> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = started.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let requests = child.stdin.take().context("the program has no standard input")?;
        let output = BufReader::new(child.stdout.take().context("the program has no standard output")?);
        let (lines, answers) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        Ok(Runner { ready: String::new(), child, requests, answers })
    }

    /// Returns the next line, for which the program has some time.
    fn answer(&mut self, patience: Duration) -> Result<String> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        self.answers.recv_timeout(patience).map_err(|error| match error {
            Timeout => Late(patience.as_secs()).into(),
            Disconnected => anyhow::anyhow!("the program ended without an answer"),
        })
    }

    /// Sends the request `NAME STEPS`.
    fn request(&mut self, name: &str, steps: usize) -> Result<()> {
        Ok(writeln!(self.requests, "{name} {steps}")?)
    }

    /// Sends the request `NAME STEPS`, and returns the number that the program answers.
    fn ask(&mut self, name: &str, steps: usize) -> Result<f64> {
        let numbers = self.ask_all(name, steps, PATIENCE)?;
        numbers.first().copied().with_context(|| format!("the program answered {name} without a number"))
    }

    /// Sends the request `NAME STEPS`, and returns all numbers that the program answers.
    fn ask_all(&mut self, name: &str, steps: usize, patience: Duration) -> Result<Vec<f64>> {
        self.request(name, steps)?;
        let answer = self.answer(patience)?;
        if let Some(reason) = answer.strip_prefix("failed ") {
            anyhow::bail!("{}", reason.trim());
        }
        let numbers = answer.split_whitespace().map(str::parse).collect::<Result<_, _>>();
        numbers.with_context(|| format!("the program's answer to {name} is not a number: {answer:?}"))
    }

    /// Trains the CNN for 20 steps, and returns by how much this raises the program's peak memory, in KiB. The program must have answered
    /// no request before.
    fn peak(&mut self) -> Result<u64> {
        let before = self.high_water()?;
        self.ask("cnn_graph_ms", 20)?;
        Ok(self.high_water()?.saturating_sub(before))
    }

    /// Returns the peak memory of the program so far, in KiB.
    fn high_water(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).context("only Linux reports a program's memory")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the program's status has no VmHWM")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
