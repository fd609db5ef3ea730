//! Benchmark of the inference of `.tflite` files on one thread. gradlet and TensorFlow Lite take turns on one machine.

use super::{Runner, Setting, median, write_json};
use anyhow::{Context, Result, ensure};
use serde_json::{Map, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use xtask::cli::BenchOptions;

const SCRIPT: &str = include_str!("litert_inference.py");

/// Number of inferences in a turn.
const COUNT: usize = 301;
/// Largest allowed ratio of gradlet's time to that of TensorFlow Lite with XNNPACK.
const BAR: f64 = 1.2;

/// Runs `cargo xtask bench inference`.
pub fn run(options: &BenchOptions) -> Result<()> {
    let setting = Setting::new(options, "tests/fixtures/tinyml", 7, "bench_inference", SCRIPT)?;
    let models = models(&setting.folder)?;
    let mut ours = Runner::start(Command::new(&setting.program).arg(&setting.folder).env("GRADLET_NUM_THREADS", "1"))?;
    let mut theirs = setting.theirs()?;
    let mut times = vec![[Ok(Vec::new()), Ok(Vec::new())]; models.len()];
    for round in 0..setting.rounds {
        for (model, times) in models.iter().zip(&mut times) {
            // The programs alternate in going first.
            for own in [round % 2 == 0, round % 2 == 1] {
                let (runner, times) = if own { (&mut ours, &mut times[0]) } else { (&mut theirs, &mut times[1]) };
                let Ok(known) = times else { continue };
                match runner.ask(model, COUNT) {
                    Ok(time) => known.push(time),
                    Err(error) => *times = Err(format!("{error:#}")),
                }
            }
        }
        setting.over(round);
    }
    drop((ours, theirs));
    let mut figures = Map::new();
    println!("{:<34} {:>10} {:>10} {:>8} {:>8}", "an inference, µs", "gradlet", "TF Lite", "ratio", "bar");
    for (model, times) in models.iter().zip(times) {
        match times.map(|times| times.map(median)) {
            [Ok(own), Ok(other)] => {
                println!("{model:<34} {own:>10.1} {other:>10.1} {:>8.3} {BAR:>8}", own / other);
                figures.insert(model.clone(), json!({ "gradlet": own, "tensorflow_lite": other, "ratio": own / other, "bar": BAR }));
            }
            [Err(why), _] => println!("{model:<34} gradlet failed: {why:.120}"),
            [_, Err(why)] => println!("{model:<34} TensorFlow Lite failed: {why:.120}"),
        }
    }
    write_json(options.json.as_deref(), &figures)
}

/// Returns the names of the models in `folder`.
fn models(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".tflite")).collect();
    names.sort();
    ensure!(!names.is_empty(), "{} has no file whose name ends with .tflite", folder.display());
    Ok(names)
}
