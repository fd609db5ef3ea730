//! Benchmark of training steps. gradlet and TensorFlow take turns on one machine.

use super::{Setting, median, write_json};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::process::Command;
use xtask::cli::BenchOptions;

const SCRIPT: &str = include_str!("tensorflow.py");

/// Names of the figures, each with the number of steps per turn, and the largest allowed ratio of gradlet's time to TensorFlow's.
const RACES: [(&str, usize, f64); 8] = [
    ("mlp_graph_ms", 200, 0.3),
    ("cnn_graph_ms", 15, 0.85),
    ("mlp_eager_ms", 30, 0.15),
    ("cnn_eager_ms", 8, 0.5),
    ("lstm_graph_ms", 20, 0.9),
    ("gru_graph_ms", 10, 0.7),
    ("mobilenet_graph_ms", 3, 0.8),
    ("mobilenet_infer_ms", 10, 0.9),
];

/// Runs `cargo xtask bench train`.
pub fn run(options: &BenchOptions) -> Result<()> {
    let setting = Setting::new(options, "data/mnist10k", 11, "bench_train", SCRIPT)?;
    let start = || Ok::<_, anyhow::Error>((setting.ours(&["--serve"])?, setting.theirs()?));

    let (mut ours, mut theirs) = start()?;
    let mut times = RACES.map(|_| [Vec::new(), Vec::new()]);
    for round in 0..setting.rounds {
        for ((name, steps, _), [our_times, their_times]) in RACES.iter().zip(&mut times) {
            // The programs alternate in going first.
            if round % 2 == 0 {
                our_times.push(ours.ask(name, *steps)?);
            }
            their_times.push(theirs.ask(name, *steps)?);
            if round % 2 == 1 {
                our_times.push(ours.ask(name, *steps)?);
            }
        }
        setting.over(round);
    }
    drop((ours, theirs));

    let mut figures = Map::new();
    println!("{:<20} {:>12} {:>12} {:>8} {:>8}", "a training step", "gradlet", "TensorFlow", "ratio", "bar");
    for ((name, _, bar), pair) in RACES.iter().zip(times) {
        let [own, other] = pair.map(median);
        println!("{name:<20} {own:>12.3} {other:>12.3} {:>8.3} {bar:>8}", own / other);
        figures.insert(name.to_string(), json!({ "gradlet": own, "tensorflow": other, "ratio": own / other, "bar": bar }));
    }
    let (mut ours, mut theirs) = start()?;
    let [own, other] = [ours.peak()?, theirs.peak()?];
    drop((ours, theirs));
    println!("{:<20} {own:>12} {other:>12} {:>8.3} {:>8}", "cnn peak, KiB", own as f64 / other as f64, 1);
    figures.insert("cnn_peak_kib".into(), json!({ "gradlet": own, "tensorflow": other, "ratio": own as f64 / other as f64, "bar": 1.0 }));
    let alone = Command::new(&setting.program).arg(&setting.folder).output().context("cannot start bench_train")?;
    let alone: Value = serde_json::from_slice(&alone.stdout).context("bench_train printed no JSON")?;
    for (name, value) in alone.as_object().into_iter().flatten().filter(|(name, _)| !name.ends_with("_ms")) {
        println!("{name:<27} {:>14}", value.as_f64().map_or_else(String::new, |value| ((value * 10.0).round() / 10.0).to_string()));
        figures.insert(name.clone(), value.clone());
    }
    write_json(options.json.as_deref(), &figures)
}
