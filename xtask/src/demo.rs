//! The main job from end to end: train on the host, export, learn on the device.

use crate::elf::Elf;
use crate::firmware;
use crate::models;
use crate::setup::{self, Toolchain};
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// How often the device goes through its digits.
const EPOCHS: u32 = 4;
const LIMIT: Duration = Duration::from_secs(1800);
/// How many steps the host repeats and compares.
pub const COMPARED: u32 = 100;
/// Where the firmware writes what the host compares, in the model's folder.
pub const LOG: &str = "demo.out";

/// `cargo xtask demo`.
pub fn run(json: Option<&Path>) -> Result<()> {
    let toolchain = setup::ensure()?;
    let folder = models::export("demo")?;
    let Device { figures, losses } = device(&toolchain, &folder, EPOCHS)?;
    print!("{}", table(&figures, losses));
    match json {
        Some(path) => {
            std::fs::write(path, serde_json::to_string_pretty(&figures)? + "\n").with_context(|| format!("cannot write {}", path.display()))
        }
        None => Ok(()),
    }
}

/// What the device did.
pub struct Device {
    /// The figures under their names in the JSON object.
    pub figures: Map<String, Value>,
    /// The mean losses on the test digits: before, after the last layer, after all weights.
    pub losses: [f64; 3],
}

/// Builds the firmware around the model and the digits in `folder`, and lets it learn for `epochs`.
///
/// [`LOG`] then holds the losses of the first [`COMPARED`] steps, every variable after them, and the other losses.
pub fn device(toolchain: &Toolchain, folder: &Path, epochs: u32) -> Result<Device> {
    let elf = firmware::build(toolchain, "demo", Some(folder))?;
    let bytes = Elf::read(&elf)?.bytes()?;
    let run = firmware::run(&elf, folder, &[&epochs.to_string(), &COMPARED.to_string(), LOG], LIMIT)?.ok()?;
    let number = |key: &str| run.number(key);
    ensure!(number("arena_short_refused")? == 1, "the executor took an arena that is a byte too small");

    let count = number("test_count")? as f64;
    let accuracy = |key: &str| Ok::<_, anyhow::Error>(json!(number(key)? as f64 / count));
    let mut figures = Map::new();
    figures.insert("device_accuracy_before".into(), accuracy("correct_before")?);
    figures.insert("device_accuracy_after_head".into(), accuracy("correct_after_head")?);
    figures.insert("device_accuracy_after".into(), accuracy("correct_after")?);
    for key in ["device_steps", "arena_planned", "arena_used", "stack_high_water", "instructions_infer", "instructions_train_step"] {
        figures.insert(key.into(), json!(number(key)?));
    }
    figures.insert("ram_total".into(), json!(bytes.ram_static + number("stack_high_water")?));
    figures.insert("flash_code".into(), json!(bytes.flash_code));
    figures.insert("flash_model".into(), json!(bytes.flash_model));
    let loss = |key: &str| Ok::<_, anyhow::Error>(number(key)? as f64 / 1e6);
    let losses = [loss("loss_before_millionths")?, loss("loss_after_head_millionths")?, loss("loss_after_millionths")?];
    Ok(Device { figures, losses })
}

/// The one table: a row for each figure, losses beside accuracies.
pub fn table(figures: &Map<String, Value>, losses: [f64; 3]) -> String {
    let get = |key: &str| figures.get(key).cloned().unwrap_or(Value::Null);
    let percent = |key: &str| get(key).as_f64().map_or("-".into(), |share| format!("{:.1} %", share * 100.0));
    let accuracy = |what: &str, key: &str, loss: Option<f64>| {
        format!("{what:<44} {:>12}{}\n", percent(key), loss.map_or(String::new(), |loss| format!("   loss {loss:.3}")))
    };
    let [before, head, after] = losses;
    let mut text = accuracy("host, digits upright", "host_accuracy", None);
    text += &accuracy("device, digits turned, before learning", "device_accuracy_before", Some(before));
    text += &accuracy("device, after learning with the last layer", "device_accuracy_after_head", Some(head));
    text += &accuracy("device, after learning with all weights", "device_accuracy_after", Some(after));
    let rows = [
        ("training steps on the device", "device_steps"),
        ("steps with the host's bits", "steps_bit_equal"),
        ("RAM: arena as planned, bytes", "arena_planned"),
        ("RAM: arena used, by painting, bytes", "arena_used"),
        ("RAM: stack high-water mark, bytes", "stack_high_water"),
        ("RAM: all of it, bytes", "ram_total"),
        ("flash without weights, bytes", "flash_code"),
        ("flash: the model, bytes", "flash_model"),
        ("instructions of an infer", "instructions_infer"),
        ("instructions of a train step", "instructions_train_step"),
    ];
    for (what, key) in rows {
        text += &format!("{what:<44} {:>12}\n", get(key).to_string());
    }
    text
}
