//! Benchmark of the summary writers' `scalar`. gradlet and TensorFlow take turns on one machine.

use super::{Setting, median, write_json};
use anyhow::{Result, ensure};
use serde_json::{Map, json};
use xtask::cli::BenchOptions;

const SCRIPT: &str = include_str!("tensorflow_summary.py");

/// Number of scalars in a turn of gradlet.
const OURS: usize = 1_000_000;
/// Number of scalars in a turn of TensorFlow.
const THEIRS: usize = 10_000;
/// Smallest allowed number of scalars per second that gradlet writes.
const PER_SECOND: f64 = 1e6;
/// Smallest allowed ratio of gradlet's rate to TensorFlow's.
const TIMES: f64 = 20.0;

/// Runs `cargo xtask bench summary`.
pub fn run(options: &BenchOptions) -> Result<()> {
    let setting = Setting::new(options, "target/bench-summary", 7, "bench_summary", SCRIPT)?;
    let mut ours = setting.ours(&[])?;
    let mut theirs = setting.theirs()?;
    for runner in [&mut ours, &mut theirs] {
        runner.ask("scalar_ms", THEIRS)?;
    }
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..setting.rounds {
        let mut turn = |own: bool| -> Result<()> {
            let (runner, count) = if own { (&mut ours, OURS) } else { (&mut theirs, THEIRS) };
            rates[usize::from(!own)].push(count as f64 / runner.ask("scalar_ms", count)? * 1e3);
            // Not timed: the writer finishes the file. Then all scalars in the file are counted.
            let arrived = runner.ask("arrived", count)?;
            ensure!(arrived == count as f64, "the file has {arrived} of the {count} scalars");
            Ok(())
        };
        // The programs alternate in going first.
        turn(round % 2 == 0)?;
        turn(round % 2 == 1)?;
        setting.over(round);
    }
    drop((ours, theirs));

    let [own, other] = rates.map(median);
    println!("{:<24} {:>12} {:>12} {:>8} {:>8}", "scalars a second", "gradlet", "TensorFlow", "times", "bar");
    println!("{:<24} {own:>12.0} {other:>12.0} {:>8.1} {TIMES:>8}", "on the caller's thread", own / other);
    println!("{:<24} {:>12} {:>12} {:>8} {PER_SECOND:>8.0}", "", "", "", "");
    let mut figures = Map::new();
    figures.insert(
        "scalars_per_second".into(),
        json!({ "gradlet": own, "tensorflow": other, "times": own / other, "bar": TIMES,
        "bar_per_second": PER_SECOND }),
    );
    write_json(options.json.as_deref(), &figures)
}
