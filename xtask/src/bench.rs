//! Training steps of gradlet and TensorFlow, taking turns on one machine; [`data`] is a race of pipelines, [`checkpoint`] of
//! checkpoints, [`summary`] of event files.

pub mod checkpoint;
pub mod data;
pub mod summary;

use crate::setup::install_tensorflow;
use crate::shell::{self, cargo};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = include_str!("bench/tensorflow.py");

/// What is timed: its name, for how many steps at a time, and how much of TensorFlow's time it may take.
const RACES: [(&str, usize, f64); 4] =
    [("mlp_graph_ms", 200, 0.3), ("cnn_graph_ms", 15, 0.85), ("mlp_eager_ms", 30, 0.15), ("cnn_eager_ms", 8, 0.5)];

/// `cargo xtask bench`.
pub fn run(folder: &Path, rounds: usize, python: Option<&Path>, json: Option<&Path>) -> Result<()> {
    let program = build("bench_train")?;
    let python = python.map_or_else(install_tensorflow, |path| Ok(path.to_path_buf()))?;
    let script = write_script("bench_tensorflow.py", SCRIPT)?;
    let start_ours = || Runner::start(Command::new(&program).arg(folder).arg("--serve"));
    let start_theirs = || Runner::start(Command::new(&python).arg(&script).arg(folder));

    let (mut ours, mut theirs) = (start_ours()?, start_theirs()?);
    let mut times = RACES.map(|_| [Vec::new(), Vec::new()]);
    for round in 0..rounds.max(1) {
        for ((name, steps, _), [our_times, their_times]) in RACES.iter().zip(&mut times) {
            // Who begins changes from round to round.
            if round % 2 == 0 {
                our_times.push(ours.ask(name, *steps)?);
            }
            their_times.push(theirs.ask(name, *steps)?);
            if round % 2 == 1 {
                our_times.push(ours.ask(name, *steps)?);
            }
        }
        eprint!("\rround {} of {rounds}", round + 1);
    }
    eprintln!();
    drop((ours, theirs));

    let mut figures = Map::new();
    println!("{:<16} {:>12} {:>12} {:>8} {:>8}", "a training step", "gradlet", "TensorFlow", "ratio", "bar");
    for ((name, _, bar), pair) in RACES.iter().zip(times) {
        let [own, other] = pair.map(median);
        println!("{name:<16} {own:>12.3} {other:>12.3} {:>8.3} {bar:>8}", own / other);
        figures.insert(name.to_string(), json!({ "gradlet": own, "tensorflow": other, "ratio": own / other, "bar": bar }));
    }
    let [own, other] = [start_ours()?.peak()?, start_theirs()?.peak()?];
    println!("{:<16} {own:>12} {other:>12} {:>8.3} {:>8}", "cnn peak, KiB", own as f64 / other as f64, 1);
    figures.insert("cnn_peak_kib".into(), json!({ "gradlet": own, "tensorflow": other, "ratio": own as f64 / other as f64, "bar": 1.0 }));
    let alone = Command::new(&program).arg(folder).output().context("cannot start bench_train")?;
    let alone: Value = serde_json::from_slice(&alone.stdout).context("bench_train gave no JSON")?;
    for (name, value) in alone.as_object().into_iter().flatten().filter(|(name, _)| !name.ends_with("_ms")) {
        println!("{name:<27} {:>14}", value.as_f64().map_or_else(String::new, |value| ((value * 10.0).round() / 10.0).to_string()));
        figures.insert(name.clone(), value.clone());
    }
    write_json(json, &figures)
}

/// A script of TensorFlow's side, where Python finds it.
fn write_script(name: &str, text: &str) -> Result<PathBuf> {
    let target = shell::root().join("target");
    fs::create_dir_all(&target)?;
    let script = target.join(name);
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
