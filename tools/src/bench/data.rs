//! Benchmark of input pipelines. gradlet and TensorFlow take turns on one machine.

use super::{Runner, Setting, median, write_json};
use anyhow::Result;
use serde_json::{Map, json};
use std::process::Command;
use xtask::cli::BenchOptions;

const SCRIPT: &str = include_str!("tensorflow_data.py");

/// Names of the figures, each with the smallest allowed ratio of gradlet's rate to TensorFlow's.
const RACES: [(&str, f64); 5] = [
    ("tfrecord_read_MBps", 3.0),
    ("tfrecord_write_MBps", 2.0),
    ("examples_per_s", 20.0),
    ("jpeg_images_per_s", 1.0),
    ("jpeg_epoch_images_per_s", 1.0 / 0.7),
];

/// Name of the figure of an epoch with a pipeline without threads, and the smallest allowed ratio of the rate with threads to it.
const SERIAL: (&str, f64) = ("jpeg_serial_epoch_images_per_s", 1.0 / 0.6);

/// Runs `cargo xtask bench data`.
pub fn run(options: &BenchOptions) -> Result<()> {
    let setting = Setting::new(options, "target/bench-data", 7, "bench_data", SCRIPT)?;
    // gradlet's program starts first, because it creates the data.
    let mut ours = Runner::start(Command::new(&setting.program).arg("--scratch").arg(&setting.folder).arg("--serve"))?;
    let mut theirs = setting.theirs()?;

    let (mut rates, mut serial) = (RACES.map(|_| [Vec::new(), Vec::new()]), Vec::new());
    for round in 0..setting.rounds {
        for ((name, _), [our_rates, their_rates]) in RACES.iter().zip(&mut rates) {
            our_rates.push(ours.ask(name, 1)?);
            their_rates.push(theirs.ask(name, 1)?);
        }
        serial.push(ours.ask(SERIAL.0, 1)?);
        setting.over(round);
    }

    let mut figures = Map::new();
    println!("{:<24} {:>12} {:>12} {:>8} {:>8}", "higher is better", "gradlet", "TensorFlow", "ratio", "bar");
    // The last race measures epochs.
    let mut epochs = f64::NAN;
    for ((name, bar), pair) in RACES.iter().zip(rates) {
        let [own, other] = pair.map(median);
        println!("{name:<24} {own:>12.1} {other:>12.1} {:>8.2} {bar:>8.2}", own / other);
        figures.insert(name.to_string(), json!({ "gradlet": own, "tensorflow": other, "ratio": own / other, "bar": bar }));
        epochs = own;
    }
    let ((name, bar), serial) = (SERIAL, median(serial));
    println!("with threads and without {epochs:>12.1} {serial:>12.1} {:>8.2} {bar:>8.2}", epochs / serial);
    figures.insert(name.into(), json!({ "gradlet": serial, "ratio": epochs / serial, "bar": bar }));
    write_json(options.json.as_deref(), &figures)
}
