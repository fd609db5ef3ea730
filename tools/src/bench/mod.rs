//! gradlet and TensorFlow, taking turns on one machine: races of training steps, of pipelines, of checkpoints, and of event files.

pub mod checkpoint;
pub mod data;
pub mod summary;
pub mod train;

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use xtask::cli::BenchOptions;
use xtask::setup::install_tensorflow;
use xtask::shell::{self, cargo};

/// A race: what answers for gradlet and for TensorFlow, and what is asked of them.
struct Setting {
    /// Where the data are.
    folder: PathBuf,
    /// How often to take turns.
    rounds: usize,
    /// The example that answers for gradlet.
    program: PathBuf,
    /// The Python that answers for TensorFlow.
    python: PathBuf,
    /// Its script.
    script: PathBuf,
}

impl Setting {
    /// Builds `example`, and finds or installs TensorFlow for `script`.
    fn new(options: &BenchOptions, folder: &str, rounds: usize, example: &str, script: &str) -> Result<Setting> {
        let folder = options.folder.clone().unwrap_or_else(|| shell::root().join(folder));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let program = build(example)?;
        let python = options.python.clone().map_or_else(install_tensorflow, Ok)?;
        let script = write_script(&format!("{example}.py"), script)?;
        Ok(Setting { folder, rounds: options.rounds.unwrap_or(rounds).max(1), program, python, script })
    }

    /// gradlet's side.
    fn ours(&self, arguments: &[&str]) -> Result<Runner> {
        Runner::start(Command::new(&self.program).arg(&self.folder).args(arguments))
    }

    /// TensorFlow's side.
    fn theirs(&self) -> Result<Runner> {
        Runner::start(Command::new(&self.python).arg(&self.script).arg(&self.folder))
    }

    /// Says which round is over.
    fn over(&self, round: usize) {
        eprint!("\rround {} of {}", round + 1, self.rounds);
        if round + 1 == self.rounds {
            eprintln!();
        }
    }
}

/// A script of TensorFlow's side, where Python finds it.
fn write_script(name: &str, text: &str) -> Result<PathBuf> {
    let target = shell::root().join("target");
    fs::create_dir_all(&target)?;
    let script = target.join(name);
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    Ok(script)
}

fn write_json(options: &BenchOptions, figures: &Map<String, Value>) -> Result<()> {
    match &options.json {
        Some(path) => fs::write(path, serde_json::to_vec_pretty(figures)?).with_context(|| format!("cannot write {}", path.display())),
        None => Ok(()),
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The example that answers for gradlet.
fn build(example: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release", "--package", "gradlet", "--example", example, "--message-format", "json"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    anyhow::ensure!(output.status.success(), "{example} does not build");
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let named = built.filter(|message| message["target"]["name"] == example);
    let path = named.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    path.with_context(|| format!("cargo did not say where {example} is"))
}

/// A program that answers requests.
struct Runner {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Runner {
    fn start(command: &mut Command) -> Result<Runner> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = started.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let requests = child.stdin.take().context("no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut runner = Runner { child, requests, answers };
        runner.answer().with_context(|| format!("{} did not get ready", command.get_program().display()))?;
        Ok(runner)
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        anyhow::ensure!(self.answers.read_line(&mut line)? > 0, "the program ended");
        Ok(line)
    }

    /// The median of the milliseconds of so many steps.
    fn ask(&mut self, name: &str, steps: usize) -> Result<f64> {
        writeln!(self.requests, "{name} {steps}")?;
        let answer = self.answer()?;
        answer.trim().parse().with_context(|| format!("the program answered {answer:?} to {name}"))
    }

    /// How many KiB of memory training the CNN takes at most, of a program that has done nothing before.
    fn peak(&mut self) -> Result<u64> {
        let before = self.high_water()?;
        self.ask("cnn_graph_ms", 20)?;
        Ok(self.high_water()?.saturating_sub(before))
    }

    /// The most memory that the program ever held, in KiB.
    fn high_water(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).context("only Linux tells a program's memory")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
