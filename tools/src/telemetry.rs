//! Checks the telemetry of the firmware `demo` over fast, slow and noisy lines.

use crate::random::Random;
use crate::{demo, models};
use anyhow::{Context, Result, ensure};
use gradlet::datasets::digits;
use gradlet::monitor::{Monitor, Report};
use gradlet::runtime::telemetry::{Decoder, Frame};
use gradlet::summary::{self, Run};
use gradlet_tools::firmware;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xtask::setup::Toolchain;
use xtask::shell;

/// Number of digits on which the device trains, once each, and number of other digits on which it tests.
const DIGITS: [usize; 2] = [40, 5];
const LOG: &str = "telemetry.out";
const LIMIT: Duration = Duration::from_secs(300);
/// Speed of a line that is too slow for the frames of a step, in bits per second.
const SLOW: u32 = 300;
/// Noise levels. At a level `n`, one byte in `n` is lost, changed or added.
const NOISE: [usize; 3] = [20, 100, 500];

/// The built firmware, and the folder of its files.
struct Device {
    firmware: firmware::Firmware,
    folder: PathBuf,
}

/// Result of a training run of the firmware.
struct Learnt {
    run: firmware::Run,
    /// Losses of `train`. The device wrote them directly to a file on the host.
    losses: Vec<f32>,
    /// Bytes that arrived over the line.
    bytes: Vec<u8>,
}

/// Checks three properties: every frame that arrives is correct, missing frames are counted, and telemetry adds at most 1 % to the
/// instructions of a training step.
pub fn check(toolchain: &Toolchain) -> Result<()> {
    let folder = models::write("telemetry", &models::cnn()?)?;
    let (train, test) = digits::load(&shell::root().join("data/mnist10k"))?;
    models::write_digits(&folder.join("digits.bin"), &train.first(DIGITS[0]).turned(), &test.first(DIGITS[1]).turned())?;
    let device = Device { firmware: firmware::build(toolchain, "demo", Some(&folder))?, folder };
    let silent = device.learn(0)?;
    ensure!(silent.bytes.is_empty(), "a closed line sends {} bytes", silent.bytes.len());

    let whole = device.learn(demo::BAUD)?;
    ensure!(whole.losses == silent.losses, "telemetry changes the trained values");
    let told = share(&silent, &whole)?;
    let ram = whole.run.number("ram_telemetry")?;
    ensure!(ram <= 256, "telemetry takes {ram} bytes of RAM beside its buffer, but at most 256 are allowed");
    println!("{} baud: a training step takes {told:.2} % more instructions; {ram} bytes of RAM beside the buffer", demo::BAUD);
    let frames = line_is_whole(&device, &whole)?;
    noise_is_seen(&device, &whole, &frames)?;
    slow_line_costs_nothing(&device, &silent, &frames)
}

impl Device {
    fn learn(&self, baud: u32) -> Result<Learnt> {
        let mut bytes = Vec::new();
        let words = ["1", "0", LOG, &baud.to_string()];
        let run = firmware::run_with_uart(&self.firmware, &self.folder, &words, LIMIT, &mut |more| bytes.extend(more))?.ok()?;
        let log = fs::read(self.folder.join(LOG))?;
        let losses = log.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect();
        Ok(Learnt { run, losses, bytes })
    }

    /// Feeds `bytes` to a monitor. Returns the events that it wrote, and its report.
    fn monitor(&self, bytes: &[u8]) -> Result<(Run, Report)> {
        let logs = models::empty(&self.folder.join("logs"))?;
        let mut monitor = Monitor::new(summary::create_file_writer(&logs)?).with_model(&self.folder.join("model.grdl"))?;
        bytes.chunks(17).try_for_each(|bytes| monitor.feed(bytes, &mut |_| ()))?;
        let report = monitor.finish()?;
        Ok((Run::read(&logs)?, report))
    }
}

/// Returns how many more instructions a training step takes in the run `told`, with telemetry, than in the run `silent`, without it, in
/// percent. Fails if it is more than 1 %.
fn share(silent: &Learnt, told: &Learnt) -> Result<f64> {
    let [silent, told] = [silent, told].map(|learnt| learnt.run.number("instructions_told_step"));
    let more = (told? as f64 / silent? as f64 - 1.0) * 100.0;
    ensure!(more <= 1.0, "telemetry adds {more:.2} % to a training step's instructions, but at most 1 % is allowed");
    Ok(more)
}

/// Checks a line that is fast enough: the events have exactly the device's losses. Returns all frames as texts.
fn line_is_whole(device: &Device, whole: &Learnt) -> Result<Vec<String>> {
    let (run, report) = device.monitor(&whole.bytes)?;
    ensure!(
        report.link.lost == 0 && report.link.before == 0 && report.link.corrupt == 0 && report.dropped == 0,
        "lost or damaged frames: {report}"
    );
    ensure!(report.link.restarts == 1, "the monitor must detect one restart: {report}");
    let losses = points(&run, "train/loss")?;
    let own: Vec<(i64, f32)> = (1..).zip(whole.losses.iter().copied()).collect();
    ensure!(losses == own, "the events have the losses {losses:?}, but the device has {own:?}");
    ensure!(points(&run, "train_head/loss")?.len() == DIGITS[0], "losses of the last layer are missing");
    let names: Vec<_> = report.profiles.iter().map(|path| folder_of(path)).collect();
    ensure!(names == ["infer-1", "train_head-1", "train-1"], "the profiles are {names:?}, not those of one step of each signature");
    println!("{} baud: {report}", demo::BAUD);
    Ok(frames(&whole.bytes))
}

fn folder_of(path: &Path) -> String {
    path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
}

fn points(run: &Run, tag: &str) -> Result<Vec<(i64, f32)>> {
    let series = run.series(tag).with_context(|| format!("the events have no {tag}"))?;
    Ok(series.points.iter().map(|point| (point.step, point.number().unwrap_or(f64::NAN) as f32)).collect())
}

/// Checks a line that loses, changes and adds bytes: every frame that arrives was sent, and the missing ones are counted.
fn noise_is_seen(device: &Device, whole: &Learnt, sent: &[String]) -> Result<()> {
    let own: Vec<(i64, f32)> = (1..).zip(whole.losses.iter().copied()).collect();
    for noise in NOISE {
        let mut random = Random::new(noise as u64);
        let mut bytes = Vec::new();
        for &byte in &whole.bytes {
            match random.below(3 * noise) {
                0 => {}
                1 => bytes.push(random.below(256) as u8),
                2 => bytes.extend([byte, random.below(256) as u8]),
                _ => bytes.push(byte),
            }
        }
        let came = frames(&bytes);
        let mut rest = sent.iter();
        ensure!(came.iter().all(|frame| rest.any(|sent| sent == frame)), "noise produced a frame that was never sent");
        let (run, report) = device.monitor(&bytes)?;
        let losses = points(&run, "train/loss")?;
        ensure!(losses.iter().all(|loss| own.contains(loss)), "noise produced a loss that was never sent: {losses:?}");
        // The last frames before a restart, and the last ones of all, have no later frame that reveals their loss.
        let missing = (sent.len() - came.len()) as u64;
        let counted = report.link.lost + u64::from(report.link.before);
        ensure!(counted <= missing && missing - counted < 30, "{missing} frames are missing, but the report does not count them: {report}");
        ensure!(report.link.corrupt > 0, "the decoder detected no damaged frame: {report}");
        println!("one bad byte in {noise}: of {} frames, {report}", sent.len());
    }
    Ok(())
}

/// Checks a line that is too slow: the device is not slowed down, and reports how many frames it dropped.
fn slow_line_costs_nothing(device: &Device, silent: &Learnt, sent: &[String]) -> Result<()> {
    let slow = device.learn(SLOW)?;
    ensure!(slow.losses == silent.losses, "a slow line changes the trained values");
    let told = share(silent, &slow)?;
    let (run, report) = device.monitor(&slow.bytes)?;
    let own = slow.run.number("dropped")? + slow.run.number("dropped_restarted")?;
    ensure!(report.dropped == own && own > 0, "the device dropped {own} frames, but the report has another number or none: {report}");
    ensure!(report.link.lost == 0 && report.link.corrupt == 0, "lost or damaged frames: {report}");
    let told_of = frames(&slow.bytes).iter().filter(|frame| frame.starts_with("Dropped")).count();
    ensure!(report.link.frames - told_of as u64 + own == sent.len() as u64, "of {} frames, {report}", sent.len());
    let device_own: Vec<(i64, f32)> = (1..).zip(slow.losses.iter().copied()).collect();
    ensure!(
        points(&run, "train/loss")?.iter().all(|loss| device_own.contains(loss)),
        "the events have a loss that the device does not have"
    );
    println!("{SLOW} baud: a training step takes {told:.2} % more instructions; {report}");
    Ok(())
}

/// Decodes `bytes`, and returns each frame as a debug text. Leaves out sequence numbers and instruction counts, which differ from run to
/// run.
fn frames(bytes: &[u8]) -> Vec<String> {
    let (mut decoder, mut frames) = (Decoder::new(vec![0; 1 << 16]), Vec::new());
    decoder.feed(bytes, &mut |received| {
        frames.push(match received.frame {
            // Interrupts make the instruction counts differ from run to run.
            Frame::Counts { signature, at, .. } => format!("Counts {signature} {at}"),
            frame => format!("{frame:?}"),
        });
    });
    frames
}
