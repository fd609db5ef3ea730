//! `cargo xtask demo`: the complete workflow. It trains on the host, exports the model, and trains further on the device.

use crate::models;
use anyhow::{Context, Result, anyhow, ensure};
use gradlet::applications::ModelSpec;
use gradlet::artifact::export::{self, Options};
use gradlet::datasets::{Digits, digits};
use gradlet::monitor::{Monitor, Report};
use gradlet::optimizers::Adam;
use gradlet::runtime::telemetry::Frame;
use gradlet::train::{Fit, Logs};
use gradlet::{Eager, Program, Scope, Session, ops, portable_cpu, summary, train};
use gradlet_tools::elf::Elf;
use gradlet_tools::firmware::{self, Firmware};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use xtask::setup::{self, Toolchain};
use xtask::shell;

/// Number of rotated digits on which the device trains, and number of other rotated digits on which it tests. No more digits fit into its
/// flash.
const DIGITS: [usize; 2] = [500, 500];
/// Number of epochs on the device.
const EPOCHS: u32 = 4;
const LIMIT: Duration = Duration::from_secs(1800);
/// Number of training steps on the device after which the host compares every weight.
const COMPARED: u32 = 100;
/// Name of the file in the model's folder to which the firmware writes the values for the host to compare.
const LOG: &str = "demo.out";
/// The table of the last committed run, which the README shows.
const COMMITTED: &str = "docs/demo.txt";
/// Speed of the device's line, in bits per second.
pub const BAUD: u32 = 115_200;

/// Runs `cargo xtask demo`. The device's events go to `logdir`. Without `logdir`, they go to a folder of their own, which is emptied first.
pub fn run(json: Option<&Path>, logdir: Option<&Path>, update: bool) -> Result<()> {
    let toolchain = setup::ensure()?;
    println!("1. Train a small CNN on 8,000 digits, and test it on 2,000");
    // Training takes one core. Another one builds the firmware's library meanwhile.
    let ready = thread::spawn(move || firmware::prepare(toolchain));
    let Host { artifact, logs, seconds, train, test } = host()?;
    let judged = |name| logs.get(name).map(|value| value as f32).context("the training did not report this figure");
    let (accuracy, loss) = (judged("val_accuracy")?, judged("val_loss")?);
    println!("   {:.2} % of the test digits in {seconds:.1} s", accuracy * 100.0);

    println!("2. Export `infer`, `train_head` and `train` as one file of {} bytes, beside digits rotated by 90°", artifact.len());
    let folder = models::write("demo", &artifact)?;
    models::write_digits(&folder.join("digits.bin"), &train, &test)?;

    println!("3. Let a Cortex-M4F with 256 KiB of RAM (QEMU) learn {} rotated digits, {EPOCHS} times each, save, and restart", train.len());
    let logdir = match logdir {
        Some(logdir) => logdir.to_path_buf(),
        None => models::empty(&folder.join("logs"))?,
    };
    println!("   to see it learn: tensorboard --logdir {}", logdir.display());
    ready.join().map_err(|_| anyhow!("building for the device panicked"))??;
    let Device { mut figures, losses } = device(&toolchain, &folder, EPOCHS, &logdir)?;

    println!("4. Repeat its steps on the host, and compare every loss and every weight, bit for bit\n");
    let equal = steps_bit_equal(&artifact, &train, &std::fs::read(folder.join(LOG))?)?;
    figures.insert("host_accuracy".into(), json!(accuracy));
    figures.insert("host_seconds".into(), json!(seconds));
    figures.insert("steps_bit_equal".into(), json!(equal));
    let table = table(&figures, losses, loss.into());
    print!("{table}");
    let committed = shell::root().join(COMMITTED);
    match std::fs::read_to_string(&committed).is_ok_and(|text| text == table) {
        true => println!("\nThese are the committed figures ({COMMITTED})."),
        false if update => std::fs::write(&committed, table).with_context(|| format!("cannot write {COMMITTED}"))?,
        false => println!("\nThese differ from the committed figures ({COMMITTED}); `cargo xtask demo --update` replaces them."),
    }
    match json {
        Some(path) => {
            std::fs::write(path, serde_json::to_string_pretty(&figures)? + "\n").with_context(|| format!("cannot write {}", path.display()))
        }
        None => Ok(()),
    }
}

/// Results of the host: the artifact, and the rotated digits for the device.
struct Host {
    artifact: Vec<u8>,
    /// Logs of the last epoch of the training on the host.
    logs: Logs,
    seconds: f64,
    train: Digits,
    test: Digits,
}

fn host() -> Result<Host> {
    let start = Instant::now();
    let (train, test) = digits::load(&shell::root().join("data/mnist10k"))?;
    let scope = Eager::with_seed(&portable_cpu(), 1);
    let spec = ModelSpec::Cnn;
    let model = Arc::new(spec.build(&scope)?);
    let tensors = |digits: &Digits| digits.tensors(&scope.device(), &spec.input());
    let ((x, y), (test_x, test_y)) = (tensors(&train)?, tensors(&test)?);
    let fit = Fit::new().epochs(6).validation_data((&test_x, &test_y));
    let history = train::classifier(&scope, model.clone(), Adam::new(0.001))?.fit((&x, &y), fit)?;
    let logs = history.last().context("the training had no epochs")?.clone();
    let seconds = start.elapsed().as_secs_f64();
    let artifact = export::artifact(&scope, &model, &spec, &Options { learning_rate: models::LEARNING_RATE, ..Options::default() })?;
    let [learn, judge] = DIGITS;
    let (train, test) = (train.first(learn).turned(), test.first(judge).turned());
    Ok(Host { artifact: artifact.to_vec(), logs, seconds, train, test })
}

/// Compares the losses of the device's `train` steps, bit for bit, with those of the host's portable kernels. The step after the restart is
/// included. Returns the number of equal losses. Fails if a loss, or a weight after [`COMPARED`] steps, differs.
fn steps_bit_equal(artifact: &[u8], train: &Digits, log: &[u8]) -> Result<u32> {
    let artifact = gradlet::device::AlignedBytes::from(artifact);
    let program = Program::load(&artifact, ops::KERNELS, &["infer", "train"])?;
    let signature = program.signature("train")?;
    let mut arena = gradlet::device::AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;
    let mut log = log;
    let mut take = |bytes: usize| log.split_off(..bytes).context("the device's log is too short");
    let mut equal = 0;
    // The last 0 is the step after the restart.
    for index in (0..EPOCHS).flat_map(|_| 0..train.len()).chain([0]) {
        let pixels = session.input_mut::<f32>(signature, 0)?;
        pixels.iter_mut().zip(train.image(index)).for_each(|(value, &pixel)| *value = f32::from(pixel) / 255.0);
        session.input_mut::<i32>(signature, 1)?.fill(train.labels[index].into());
        session.run(signature)?;
        equal += 1;
        ensure!(take(4)? == session.output_bytes(signature, 0)?, "the loss of step {equal} differs between device and host");
        if equal == COMPARED {
            for variable in 0..session.variable_count() {
                let own = session.variable(variable)?;
                ensure!(take(own.len())? == own, "variable {variable} differs between device and host after {equal} steps");
            }
        }
    }
    Ok(equal)
}

/// Results of the device.
struct Device {
    /// The figures under their names in the JSON object.
    figures: Map<String, Value>,
    /// Mean losses on the test digits: before training, after training the last layer, and after training all weights.
    losses: [f64; 3],
}

/// Builds the firmware with the model and the digits in `folder`, and trains it for `epochs` epochs.
///
/// [`LOG`] then holds the losses of the first [`COMPARED`] steps, every variable after them, and the other losses.
fn device(toolchain: &Toolchain, folder: &Path, epochs: u32, logdir: &Path) -> Result<Device> {
    let firmware = firmware::build(toolchain, "demo", Some(folder))?;
    let bytes = Elf::read(&firmware.elf)?.bytes()?;
    // The firmware's console is shown only at the end. The spinner shows that it is running.
    let spinner = indicatif::ProgressBar::new_spinner().with_message("the device is learning");
    spinner.set_style(indicatif::ProgressStyle::with_template("   {spinner} {msg}, {elapsed}")?);
    spinner.enable_steady_tick(Duration::from_millis(200));
    let mut monitor = Monitor::new(summary::create_file_writer(logdir)?).with_model(&folder.join("model.grdl"))?;
    let mut fed = Ok(());
    let words = [epochs, COMPARED].map(|number| number.to_string());
    let run = firmware::run_with_uart(&firmware, folder, &[&words[0], &words[1], LOG, &BAUD.to_string()], LIMIT, &mut |bytes| {
        let shown = monitor.feed(bytes, &mut |received| {
            if let Frame::Scalar { tag, step, value } = received.frame {
                spinner.set_message(format!("the device is learning: step {step}, {tag} {value:.4}"));
            }
        });
        fed = std::mem::replace(&mut fed, Ok(())).and(shown);
    })?;
    spinner.finish_and_clear();
    fed?;
    let (run, report) = (run.ok()?, monitor.finish()?);
    let Report { link, dropped, .. } = report;
    let lost = link.lost + u64::from(link.before) + dropped;
    ensure!(lost == 0 && link.corrupt == 0, "frames were lost or damaged, although the line is fast enough: {report}");
    let number = |key: &str| run.number(key);
    ensure!(number("arena_short_refused")? == 1, "the executor accepted an arena that is a byte too small");

    let count = number("test_count")? as f64;
    let accuracy = |key: &str| Ok::<_, anyhow::Error>(json!(number(key)? as f64 / count));
    let mut figures = Map::new();
    figures.insert("device_accuracy_before".into(), accuracy("correct_before")?);
    figures.insert("device_accuracy_after_head".into(), accuracy("correct_after_head")?);
    figures.insert("device_accuracy_after".into(), accuracy("correct_after")?);
    figures.insert("device_accuracy_restarted".into(), accuracy("correct_restarted")?);
    for (before, after) in [("correct_after", "correct_restarted"), ("loss_after_millionths", "loss_restarted_millionths")] {
        ensure!(number(before)? == number(after)?, "{after} is {}, but was {} before the restart", number(after)?, number(before)?);
    }
    let keys = ["device_steps", "arena_planned", "arena_used", "stack_high_water", "instructions_infer", "instructions_train_step"];
    for key in keys.into_iter().chain(["checkpoint_bytes"]) {
        figures.insert(key.into(), json!(number(key)?));
    }
    figures.insert("ram_total".into(), json!(bytes.ram_static + number("stack_high_water")?));
    figures.insert("flash_code".into(), json!(bytes.flash_code));
    figures.insert("flash_model".into(), json!(bytes.flash_model));
    figures.insert("frames".into(), json!(link.frames));
    figures.insert("frames_lost".into(), json!(lost));
    let loss = |key: &str| Ok::<_, anyhow::Error>(number(key)? as f64 / 1e6);
    let losses = [loss("loss_before_millionths")?, loss("loss_after_head_millionths")?, loss("loss_after_millionths")?];
    Ok(Device { figures, losses })
}

/// Formats the result table: a row for each figure, with losses beside the accuracies.
fn table(figures: &Map<String, Value>, losses: [f64; 3], host_loss: f64) -> String {
    let get = |key: &str| figures.get(key).cloned().unwrap_or(Value::Null);
    let percent = |key: &str| get(key).as_f64().map_or("-".into(), |share| format!("{:.1} %", share * 100.0));
    let accuracy = |what: &str, key: &str, loss: Option<f64>| {
        format!("{what:<44} {:>12}{}\n", percent(key), loss.map_or(String::new(), |loss| format!("   loss {loss:.3}")))
    };
    let [before, head, after] = losses;
    let mut text = accuracy("host, upright digits", "host_accuracy", Some(host_loss));
    text += &accuracy("device, rotated digits, before training", "device_accuracy_before", Some(before));
    text += &accuracy("device, after training the last layer", "device_accuracy_after_head", Some(head));
    text += &accuracy("device, after training all weights", "device_accuracy_after", Some(after));
    text += &accuracy("device, after a restart, from flash", "device_accuracy_restarted", Some(after));
    let rows = [
        ("training steps on the device", "device_steps"),
        ("steps with the same bits as on the host", "steps_bit_equal"),
        ("RAM: arena as planned, bytes", "arena_planned"),
        ("RAM: arena used, by painting, bytes", "arena_used"),
        ("RAM: stack high-water mark, bytes", "stack_high_water"),
        ("RAM: total, bytes", "ram_total"),
        ("flash without weights, bytes", "flash_code"),
        ("flash: the model, bytes", "flash_model"),
        ("flash: the checkpoint, bytes", "checkpoint_bytes"),
        ("instructions of one inference", "instructions_infer"),
        ("instructions of one training step", "instructions_train_step"),
        ("telemetry at 115,200 baud: frames", "frames"),
        ("telemetry: frames lost or dropped", "frames_lost"),
    ];
    for (what, key) in rows {
        text += &format!("{what:<44} {:>12}\n", get(key).to_string());
    }
    text
}

/// Builds the firmware with an untrained model and digits that it learns for half a minute. Returns the path of its ELF file.
pub fn untrained(toolchain: &Toolchain) -> Result<Firmware> {
    let folder = models::write("live", &models::cnn()?)?;
    let (train, test) = digits::load(&shell::root().join("data/mnist10k"))?;
    models::write_digits(&folder.join("digits.bin"), &train.first(DIGITS[0]).turned(), &test.first(DIGITS[1]).turned())?;
    firmware::build(toolchain, "demo", Some(&folder))
}

/// Returns the command that runs the firmware of [`untrained`], one word per line.
pub fn learning(toolchain: &Toolchain) -> Result<String> {
    let command = firmware::qemu(&untrained(toolchain)?, &[&EPOCHS.to_string(), "0", LOG, &BAUD.to_string()]);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    Ok(words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join("\n"))
}
