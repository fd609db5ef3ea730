//! `cargo xtask size`: flash, RAM and instruction counts of the firmwares, compared with the committed figures and with upper limits.

use crate::cycles::{self, Step};
use crate::{demo, models};
use anyhow::{Context, Result, ensure};
use gradlet::artifact::firmware::Cpu;
use gradlet_tools::elf::{Bytes, Elf};
use gradlet_tools::firmware::{self, Run};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;
use xtask::boards::{M4F, TARGETS, Target};
use xtask::setup::{self, Toolchain};
use xtask::shell;

const COMMITTED: &str = "tests/sizes.json";
const LIMIT: Duration = Duration::from_secs(120);

/// A figure, with its upper limit if it has one.
struct Row {
    name: String,
    value: u64,
    bar: Option<u64>,
}

/// Runs `cargo xtask size`.
pub fn run(json: Option<&Path>, update: bool) -> Result<()> {
    let toolchain = setup::ensure()?;
    let rows = rows(&toolchain)?;
    let committed = committed()?;
    print(&rows, &committed);
    print_cycles(&toolchain)?;
    let figures = figures(&toolchain, &rows);
    if let Some(path) = json {
        write(path, &figures)?;
    }
    if update {
        write(&shell::root().join(COMMITTED), &figures)?;
    }
    Ok(())
}

/// Fails if a figure is above its limit, or more than 1 % above the committed one. The committed figures count only for the same compiler.
pub fn check() -> Result<()> {
    let toolchain = setup::ensure()?;
    let rows = rows(&toolchain)?;
    let committed = committed()?;
    print(&rows, &committed);
    let same = committed.get("toolchain").and_then(Value::as_str) == Some(&toolchain.to_string());
    let grown = |row: &&Row| same && committed.get(&row.name).and_then(Value::as_u64).is_some_and(|old| row.value * 100 > old * 101);
    let over = |row: &&Row| row.bar.is_some_and(|bar| row.value > bar);
    let bad: Vec<&str> = rows.iter().filter(|row| grown(row) || over(row)).map(|row| row.name.as_str()).collect();
    ensure!(bad.is_empty(), "too large: {} (run `cargo xtask size --update` to commit an intended growth)", bad.join(", "));
    Ok(())
}

fn rows(toolchain: &Toolchain) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    executor(toolchain, &mut rows)?;
    let demo = Elf::read(&demo::untrained(toolchain)?.elf)?.bytes()?;
    rows.push(Row { name: "demo.flash_code".into(), value: demo.flash_code, bar: None });
    for (name, arguments, bars) in FIRMWARES {
        model(toolchain, name, arguments, bars, &mut rows)?;
    }
    for target in TARGETS.iter().filter(|target| ["m4f", "m55"].contains(&target.name)) {
        match setup::ensure_target(target)? {
            Ok(toolchain) => imported(&toolchain, target, &mut rows)?,
            Err(why) => println!("{} is left out: {why}", target.name),
        }
    }
    streamed(toolchain, &mut rows)?;
    let folder = models::export("train")?;
    for target in &TARGETS {
        match setup::ensure_target(target)? {
            Ok(toolchain) => train(&toolchain, target, &folder, &mut rows)?,
            Err(why) => println!("{} is left out: {why}", target.name),
        }
    }
    Ok(rows)
}

/// Measures the smallest firmware that trains, on `target`. The smallest processors must have room for it.
fn train(toolchain: &Toolchain, target: &'static Target, folder: &Path, rows: &mut Vec<Row>) -> Result<()> {
    let firmware = firmware::build_for(toolchain, target, "train", Some(folder))?;
    let Bytes { flash_code, ram_static, .. } = Elf::read(&firmware.elf)?.bytes()?;
    let run = firmware::run(&firmware, folder, &[], LIMIT)?.ok()?;
    let small = ["m0", "rv32imc"].contains(&target.name);
    let ram = ram_static + run.number("stack_high_water")?;
    let step = run.number("instructions_train_step")?;
    let load = run.number("instructions_load")?;
    let bars = [None, small.then_some(16 << 10), None, None];
    let figures = [("flash_code", flash_code), ("ram", ram), ("instructions_load", load), ("instructions_train_step", step)];
    rows.extend(figures.into_iter().zip(bars).map(|((key, value), bar)| Row { name: format!("{}.train.{key}", target.name), value, bar }));
    Ok(())
}

/// A limit, if there is one.
type Limit = Option<u64>;

/// The imported models of firmware `infer`: short name, file, the bytes of TensorFlow Lite Micro's arena where they are known, and the
/// limits of instructions on the Cortex-M4 and the M55.
const IMPORTED: [(&str, &str, Limit, [Limit; 2]); 6] = [
    ("kws", "tinyml/kws_ref_model.tflite", Some(22_820), [Some(6_000_000), Some(1_820_000)]),
    ("vww", "tinyml/vww_96_int8.tflite", Some(100_708), [Some(19_000_000), Some(6_560_000)]),
    ("resnet", "tinyml/pretrainedResnet_quant.tflite", Some(54_996), [Some(25_400_000), Some(4_910_000)]),
    ("ad01", "tinyml/ad01_int8.tflite", Some(2_580), [Some(500_000), None]),
    ("person", "tinyml/person_detect.tflite", Some(82_308), [Some(18_000_000), None]),
    ("transformer", "models_int16/transformer_int8.tflite", None, [None, None]),
];

/// Measures the imported models on `target`.
fn imported(toolchain: &Toolchain, target: &'static Target, rows: &mut Vec<Row>) -> Result<()> {
    let (short, index) = if target.name == "m55" { ("m55", 1) } else { ("m4", 0) };
    for (name, file, arena, instructions) in IMPORTED {
        let (run, flash_code) = infer(toolchain, target, file, None)?;
        let figures = [
            ("instructions_infer", run.number("instructions_infer")?, instructions[index]),
            ("arena_planned", run.number("arena_planned")?, arena),
            ("stack_infer", run.number("stack_infer")?, None),
            ("flash_code", flash_code, (name == "kws").then_some(32 << 10)),
        ];
        rows.extend(figures.into_iter().map(|(key, value, bar)| Row { name: format!("{name}.{short}.{key}"), value, bar }));
    }
    Ok(())
}

/// The wake word model, and the axis of its frames.
const STREAMED: (&str, usize) = ("tinyml/str_ww_ref_model.tflite", 1);

/// Measures the wake word model on the Cortex-M4: a whole window, and a frame, which takes at most a tenth of a window.
fn streamed(toolchain: &Toolchain, rows: &mut Vec<Row>) -> Result<()> {
    let (file, axis) = STREAMED;
    let instructions = |stream| infer(toolchain, &M4F, file, stream)?.0.number("instructions_infer");
    let (window, frame) = (instructions(None)?, instructions(Some(axis))?);
    rows.push(Row { name: "str_ww.m4.instructions_window".into(), value: window, bar: None });
    rows.push(Row { name: "str_ww.m4.instructions_frame".into(), value: frame, bar: Some(window / 10) });
    Ok(())
}

/// Runs firmware `infer` with the model `file` on `target`, as [`models::import`] imports it. The outputs must have the host's bits.
/// Returns the run and the bytes of code.
fn infer(toolchain: &Toolchain, target: &'static Target, file: &str, stream: Option<usize>) -> Result<(Run, u64)> {
    let cpu = if target.name == "m55" { Cpu::CortexM55 } else { Cpu::Any };
    let (folder, want) = models::import(file, cpu, stream)?;
    let firmware = firmware::build_for(toolchain, target, "infer", Some(&folder))?;
    let flash_code = Elf::read(&firmware.elf)?.bytes()?.flash_code;
    let run = firmware::run(&firmware, &folder, &["infer.out"], LIMIT)?.ok()?;
    let got: Vec<i8> = std::fs::read(folder.join("infer.out"))?.into_iter().map(|byte| byte as i8).collect();
    ensure!(got == want, "{file} gives {got:?} on {}, not {want:?}", target.name);
    Ok((run, flash_code))
}

/// Measures the flash of gradlet's parts as differences between firmwares. Executor and verifier: `empty` minus `bare`. Checkpoints and
/// slots: `flat` minus `empty`. Telemetry: `telemetry` minus `empty`.
fn executor(toolchain: &Toolchain, rows: &mut Vec<Row>) -> Result<()> {
    let flash = |name| Ok::<_, anyhow::Error>(Elf::read(&firmware::build(toolchain, name, None)?.elf)?.bytes()?.flash_code);
    let empty = flash("empty")?;
    rows.push(Row { name: "executor.flash".into(), value: empty - flash("bare")?, bar: Some(11_520) });
    rows.push(Row { name: "flat.flash".into(), value: flash("flat")? - empty, bar: Some(6_400) });
    rows.push(Row { name: "telemetry.flash".into(), value: flash("telemetry")? - empty, bar: Some(2_112) });
    Ok(())
}

type Bars = &'static [(&'static str, u64)];

/// Firmwares with a model: name, arguments, and the limits of their figures.
const FIRMWARES: [(&str, &[&str], Bars); 6] = [
    (
        "mlp",
        &["8", "mlp.out"],
        &[("instructions_train_step", 37_120), ("ram_static", 16 << 10), ("stack_infer", 1024), ("stack_train", 1280)],
    ),
    // 12 instructions for each byte of the model.
    ("book", &["2", "book.out"], &[("flash_code", 27 << 10), ("instructions_load", 12 * 320_000)]),
    ("lstm", &["2", "lstm.out"], &[]),
    // The demo's CNN.
    ("slices", &["1"], &[("instructions_train_step", 3_600_000), ("longest_slice_infer", 25_000), ("longest_slice_train", 25_000)]),
    // 25 instructions for each byte of the checkpoint. The slices have a budget of 20,000.
    (
        "restart",
        &["train", "4", "2", "restart.out"],
        &[
            ("stack_save", 512),
            ("stack_restore", 512),
            ("instructions_save", 25 * 29_524),
            ("instructions_restore", 25 * 29_524),
            ("slice_save", 25_000),
            ("slice_restore", 25_000),
        ],
    ),
    ("dispatch", &[], &[("instructions_dispatch", 184), ("instructions_iteration", 300), ("instructions_branch", 320)]),
];

/// Keys of a firmware's report that become rows.
const REPORTED: [&str; 21] = [
    "arena_planned",
    "arena_used",
    "stack_high_water",
    "stack_infer",
    "stack_train",
    "stack_save",
    "stack_restore",
    "checkpoint_bytes",
    "instructions_load",
    "instructions_save",
    "instructions_restore",
    "slice_save",
    "slice_restore",
    "instructions_infer",
    "instructions_train_step",
    "longest_slice_infer",
    "longest_slice_train",
    "instructions_dispatch",
    "instructions_iteration",
    "instructions_counted_iteration",
    "instructions_branch",
];

fn model(toolchain: &Toolchain, name: &str, arguments: &[&str], bars: Bars, rows: &mut Vec<Row>) -> Result<()> {
    let folder = models::export(name)?;
    let firmware = firmware::build(toolchain, name, Some(&folder))?;
    let Bytes { flash_code, flash_model, ram_static } = Elf::read(&firmware.elf)?.bytes()?;
    let run = firmware::run(&firmware, &folder, arguments, LIMIT)?.ok()?;
    let reported = REPORTED.iter().filter_map(|&key| Some((key, run.number(key).ok()?)));
    let measured = [("flash_code", flash_code), ("flash_model", flash_model), ("ram_static", ram_static)];
    for (key, value) in measured.into_iter().chain(reported) {
        let bar = bars.iter().find(|bar| bar.0 == key).map(|bar| bar.1);
        rows.push(Row { name: format!("{name}.{key}"), value, bar });
    }
    Ok(())
}

fn committed() -> Result<Map<String, Value>> {
    let path = shell::root().join(COMMITTED);
    if !path.exists() {
        return Ok(Map::new());
    }
    serde_json::from_slice(&std::fs::read(&path)?).with_context(|| format!("{COMMITTED} is not a JSON object"))
}

fn figures(toolchain: &Toolchain, rows: &[Row]) -> Map<String, Value> {
    let first = ("toolchain".to_string(), json!(toolchain.to_string()));
    std::iter::once(first).chain(rows.iter().map(|row| (row.name.clone(), json!(row.value)))).collect()
}

fn write(path: &Path, figures: &Map<String, Value>) -> Result<()> {
    let text = serde_json::to_string_pretty(figures)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints the estimated cycles of a training step. They are no figure: no board was measured.
fn print_cycles(toolchain: &Toolchain) -> Result<()> {
    let folder = models::export("mlp")?;
    match cycles::of_step(&firmware::build(toolchain, "mlp", Some(&folder))?, &folder)? {
        Ok(Step { instructions, cycles }) => println!(
            "\nFor information: by Arm's table, the {instructions} instructions of a training step of `mlp`, with its inputs, take about \
             {cycles} cycles of a Cortex-M4 without wait states."
        ),
        Err(why) => println!("\nNo estimate of cycles: {why}."),
    }
    Ok(())
}

fn print(rows: &[Row], committed: &Map<String, Value>) {
    println!("{:<32} {:>10} {:>10} {:>8} {:>10}", "", "now", "committed", "change", "bar");
    for Row { name, value, bar } in rows {
        let old = committed.get(name).and_then(Value::as_u64);
        let change = old.map_or(String::new(), |old| format!("{:+}", *value as i64 - old as i64));
        let text = |figure: Option<u64>| figure.map_or(String::new(), |figure| figure.to_string());
        println!("{name:<32} {value:>10} {:>10} {change:>8} {:>10}", text(old), text(*bar));
    }
}
