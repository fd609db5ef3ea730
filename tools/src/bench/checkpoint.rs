//! Benchmark of checkpoints. gradlet and TensorFlow take turns on one machine.

use super::{Runner, Setting, median, write_json};
use anyhow::Result;
use serde_json::{Map, json};
use std::thread;
use std::time::Duration;
use xtask::cli::BenchOptions;

const SCRIPT: &str = include_str!("tensorflow_checkpoint.py");

/// Names of the figures, each with the largest allowed ratio of gradlet's time to TensorFlow's.
const RACES: [(&str, f64); 2] = [("save_ms", 0.5), ("restore_ms", 0.5)];

/// Largest allowed memory that saving and restoring need in addition to the variables, in MiB.
const MEMORY: f64 = 32.0;

/// Pause before each program's turn. Idle worker threads of the other program may keep a core busy for a while.
const REST: Duration = Duration::from_millis(300);

fn turn(runner: &mut Runner, name: &str) -> Result<f64> {
    thread::sleep(REST);
    runner.ask(name, 1)
}

/// Runs `cargo xtask bench checkpoint`.
pub fn run(options: &BenchOptions) -> Result<()> {
    let setting = Setting::new(options, "target/bench-checkpoint", 7, "bench_checkpoint", SCRIPT)?;
    let mut ours = setting.ours(&[])?;
    let mut theirs = setting.theirs()?;

    let before = ours.high_water()?;
    ours.ask("warm_up", 1)?;
    let mut times = RACES.map(|_| [Vec::new(), Vec::new()]);
    for round in 0..setting.rounds {
        for ((name, _), [our_times, their_times]) in RACES.iter().zip(&mut times) {
            // The programs alternate in going first, because memory that was freed a moment ago is cheaper.
            if round % 2 == 0 {
                our_times.push(turn(&mut ours, name)?);
            }
            their_times.push(turn(&mut theirs, name)?);
            if round % 2 == 1 {
                our_times.push(turn(&mut ours, name)?);
            }
        }
        setting.over(round);
    }
    let memory = ours.high_water()?.saturating_sub(before) as f64 / 1024.0;
    drop((ours, theirs));

    let mut figures = Map::new();
    println!("{:<24} {:>12} {:>12} {:>8} {:>8}", "1 GiB of variables", "gradlet", "TensorFlow", "ratio", "bar");
    for ((name, bar), pair) in RACES.iter().zip(times) {
        let [own, other] = pair.map(median);
        println!("{name:<24} {own:>12.0} {other:>12.0} {:>8.2} {bar:>8}", own / other);
        figures.insert(name.to_string(), json!({ "gradlet": own, "tensorflow": other, "ratio": own / other, "bar": bar }));
    }
    println!("{:<24} {memory:>12.1} {:>12} {:>8} {MEMORY:>8}", "MiB beyond variables", "", "");
    figures.insert("memory_mib".into(), json!({ "gradlet": memory, "bar": MEMORY }));
    write_json(options.json.as_deref(), &figures)
}
