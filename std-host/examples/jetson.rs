//! A camera that learns: a GPU infers frames, and trains on labelled ones at the same time. It is made for a Jetson. Without a GPU, the CPU
//! does both.
//!
//! - Two logical devices divide the GPU. Each has a memory limit, so training cannot take the memory that inference needs.
//! - One thread infers frames. The other one trains on them, and gives the new weights to inference.
//! - Checkpoints keep the weights. The next start continues with the last one. TensorBoard shows the curves.
//!
//! `cargo run --release -p gradlet --features cuda --example jetson -- --steps 200`, then `tensorboard --logdir jetson/logs`.

use clap::Parser;
use gradlet::applications::ModelSpec;
use gradlet::artifact::{Loaded, LoadedSignature, export, load_signatures};
use gradlet::checkpoint::{Checkpoint, CheckpointManager};
use gradlet::config::{self, LogicalDeviceConfiguration};
use gradlet::random::Stream;
use gradlet::summary::{self, SummaryWriter};
use gradlet::{DType, Device, Eager, Scope, Tensor, TensorType, Variable, cuda};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

/// Result of a function that either thread calls.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Infer the frames of a camera on a GPU, and train on them at the same time
///
/// Ctrl-C ends the program after the current step and saves the weights. The next start continues with them.
#[derive(Parser)]
pub struct Arguments {
    /// Artifact with the signatures infer, train, save and restore, as `gradlet export` writes it [default: a new model]
    #[arg(long, value_name = "FILE")]
    pub artifact: Option<PathBuf>,
    /// Model of a new artifact: cnn, or units as in mlp:64-16-4
    #[arg(long, value_name = "NAME", default_value = "cnn")]
    pub model: ModelSpec,
    /// Number of frames in a batch of a new artifact
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub batch: u32,
    /// Memory limit of the device that infers, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub infer_memory: u64,
    /// Memory limit of the device that trains, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    pub train_memory: u64,
    /// Number of training steps in this run [default: until Ctrl-C]
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Number of steps between checkpoints; after each one, inference has the new weights
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..))]
    pub every: i64,
    /// Folder for the new artifact, the checkpoints, and the event files of TensorBoard
    #[arg(long, value_name = "FOLDER", default_value = "jetson")]
    pub folder: PathBuf,
}

/// Runs until all steps are done or `stop` is true.
pub fn run(arguments: &Arguments, stop: &AtomicBool, out: &mut dyn Write) -> Result<()> {
    let devices = devices(arguments, out)?;
    let path = arguments.artifact.clone().map_or_else(|| new_artifact(arguments), Ok)?;
    let infer = load_signatures(&path, &["infer", "restore"])?.on(&devices[0])?;
    let train = load_signatures(&path, &["train", "save", "restore"])?.on(&devices[1])?;
    let report = Report { writer: summary::create_file_writer(arguments.folder.join("logs"))?, window: Mutex::default(), devices };

    let host = Eager::new(&gradlet::cpu());
    let (weights, step) = (Weights::of(&host, &train)?, Variable::untrained("step"));
    step.create(&host, &Tensor::scalar(&host.device(), 0i64))?;
    let checkpoint = Checkpoint::new().with("weights", &weights.0).with("step", &step);
    let mut manager = CheckpointManager::new(checkpoint, arguments.folder.join("checkpoints"), 3)?;
    if let Some(path) = manager.restore_or_initialize()? {
        writeln!(out, "continuing with {}", path.display())?;
        weights.give(&host, &train, &report.devices[1])?;
        weights.give(&host, &infer, &report.devices[0])?;
    }

    // Only two batches wait, so a slow training holds the frames up. With `try_send`, it would miss some instead.
    let (sender, labelled) = sync_channel(2);
    thread::scope(|threads| {
        let camera = threads.spawn(|| watch(&infer, &report, stop, sender));
        let batches = labelled.into_iter().take(arguments.steps.unwrap_or(usize::MAX));
        learn(&train, &report, batches, |loss, last| {
            host.assign_add(&step, &Tensor::scalar(&host.device(), 1i64))?;
            let now = host.read(&step)?.item::<i64>()?;
            report.writer.scalar("loss", loss, now)?;
            if last || now % arguments.every == 0 {
                weights.take(&host, &train)?;
                weights.give(&host, &infer, &report.devices[0])?;
                manager.save_with_checkpoint_number(now as u64)?;
                report.write(now, loss, out)?;
            }
            Ok(())
        })?;
        camera.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(report.writer.close()?)
}

/// Divides the first GPU, or the CPU if there is none, into a device that infers and one that trains.
fn devices(arguments: &Arguments, out: &mut dyn Write) -> Result<[Device; 2]> {
    let first = |device_type| config::list_physical_devices(Some(device_type)).into_iter().next();
    if let (None, Err(reason)) = (first("GPU"), cuda::Driver::load()) {
        writeln!(out, "the CPU computes: {reason}")?;
    }
    let physical = first("GPU").or_else(|| first("CPU")).ok_or("there is no device")?;
    let limits = [arguments.infer_memory, arguments.train_memory].map(|limit| LogicalDeviceConfiguration::new().memory_limit(limit));
    config::set_logical_device_configuration(&physical, &limits)?;
    let device = |index| config::context().device(&format!("{}:{index}", physical.device_type()));
    Ok([device(0)?, device(1)?])
}

/// Writes an artifact of a model that has not learnt anything yet.
fn new_artifact(arguments: &Arguments) -> Result<PathBuf> {
    let scope = Eager::with_seed(&gradlet::cpu(), 1);
    let model = Arc::new(arguments.model.build(&scope)?);
    let signatures = ["infer", "train", "save", "restore"].map(String::from).into();
    let options = export::Options { batch: arguments.batch, learning_rate: 0.05, signatures, ..export::Options::default() };
    let path = arguments.folder.join("model.grdl");
    std::fs::create_dir_all(&arguments.folder)?;
    gradlet::io::write_whole(&path, &export::artifact(&scope, &model, &arguments.model, &options)?)?;
    Ok(path)
}

/// Infers frames until `stop` is true or training has ended, and sends them to training with their labels. A robot gets labels from an
/// operator or a slower sensor, and only for some frames; here, every frame has one.
fn watch(infer: &Loaded, report: &Report, stop: &AtomicBool, labelled: SyncSender<Batch>) -> Result<()> {
    let infer = infer.signature("infer")?;
    let classes = infer.outputs().next().and_then(|(_, logits)| logits.shape.dims().last().copied()).ok_or("infer returns no logits")?;
    let mut camera = Camera { input: nth_input(&infer, 0)?, classes, captured: 0 };
    while !stop.load(Ordering::Relaxed) {
        let batch = camera.capture();
        let start = Instant::now();
        let frames = Tensor::new(&report.devices[0], &batch.frames, camera.input.shape.dims())?;
        let guesses = infer.call(&[frames])?[0].argmax(-1, DType::I32)?.to_vec::<i32>()?;
        let milliseconds = start.elapsed().as_secs_f32() * 1e3;
        let hits = guesses.iter().zip(&batch.labels).filter(|(guess, label)| guess == label).count();
        report.window().push((milliseconds, hits as f32 / guesses.len() as f32));
        if labelled.send(batch).is_err() {
            break;
        }
    }
    Ok(())
}

/// Trains on batches, and calls `done` after each step with the loss. Its second argument is true for the last step.
fn learn(
    train: &Loaded,
    report: &Report,
    batches: impl Iterator<Item = Batch>,
    mut done: impl FnMut(f32, bool) -> Result<()>,
) -> Result<()> {
    let train = train.signature("train")?;
    let [x, y] = [nth_input(&train, 0)?, nth_input(&train, 1)?];
    let mut batches = batches.peekable();
    while let Some(batch) = batches.next() {
        let frames = Tensor::new(&report.devices[1], &batch.frames, x.shape.dims())?;
        let labels = Tensor::new(&report.devices[1], &batch.labels, y.shape.dims())?;
        let loss = train.call(&[frames, labels])?[0].item::<f32>()?;
        done(loss, batches.peek().is_none())?;
    }
    Ok(())
}

/// Returns the type of an input.
fn nth_input(signature: &LoadedSignature<'_>, index: usize) -> Result<TensorType> {
    let found = signature.inputs().nth(index).map(|(_, tensor_type)| tensor_type);
    found.ok_or_else(|| format!("the signature {} has no input {index}", signature.name()).into())
}

/// The weights in memory of the host, by name: for checkpoints, and on their way from one device to the other.
struct Weights(BTreeMap<String, Variable>);

impl Weights {
    /// Creates the weights with the values of `train`.
    fn of(host: &Eager, train: &Loaded) -> Result<Weights> {
        let values = train.signature("save")?.call_named(&[])?.into_iter();
        let created = values.map(|(name, value)| Ok((name.into(), Variable::new(host, name, &value.to(&host.device())?)?)));
        Ok(Weights(created.collect::<Result<_>>()?))
    }

    /// Takes the values of `train`.
    fn take(&self, host: &Eager, train: &Loaded) -> Result<()> {
        let values = train.signature("save")?.call_named(&[])?;
        values.iter().try_for_each(|(name, value)| Ok(host.assign(&self.0[*name], &value.to(&host.device())?)?))
    }

    /// Gives the values to `loaded`, which runs on `device`. Its next call has all of them, the call before it none.
    fn give(&self, host: &Eager, loaded: &Loaded, device: &Device) -> Result<()> {
        let values = self.0.iter().map(|(name, variable)| Ok((name.as_str(), host.read(variable)?.to(device)?)));
        loaded.signature("restore")?.call_named(&values.collect::<Result<Vec<_>>>()?)?;
        Ok(())
    }
}

/// Frames with their labels.
struct Batch {
    frames: Vec<f32>,
    labels: Vec<i32>,
}

/// A camera in front of noise with a bright stripe. The place of the stripe is the class.
struct Camera {
    /// The type of a batch of frames.
    input: TensorType,
    classes: u32,
    /// Number of frames so far.
    captured: u64,
}

impl Camera {
    fn capture(&mut self) -> Batch {
        let frames = self.input.shape.dims().first().map_or(1, |frames| *frames as usize);
        let pixels = self.input.shape.elements().unwrap_or(0) / frames;
        let mut batch = Batch { frames: Vec::new(), labels: Vec::new() };
        for _ in 0..frames {
            let random = Stream { key: 7, stream: self.captured };
            let label = random.block(u64::MAX)[0] % self.classes;
            let stripe = |place: u32| place as usize * pixels / self.classes as usize;
            let mut frame = random.uniform(pixels);
            frame[stripe(label)..stripe(label + 1)].iter_mut().for_each(|pixel| *pixel += 1.0);
            batch.frames.extend(frame);
            batch.labels.push(label as i32);
            self.captured += 1;
        }
        batch
    }
}

/// Reports to TensorBoard and to the terminal.
struct Report {
    writer: SummaryWriter,
    /// Milliseconds and accuracy of each batch since the last report.
    window: Mutex<Vec<(f32, f32)>>,
    /// The device that infers, and the one that trains.
    devices: [Device; 2],
}

impl Report {
    fn window(&self) -> MutexGuard<'_, Vec<(f32, f32)>> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the batches since the last report.
    fn write(&self, step: i64, loss: f32, out: &mut dyn Write) -> Result<()> {
        let mut window = std::mem::take(&mut *self.window());
        window.sort_by(|one, other| one.0.total_cmp(&other.0));
        let accuracy = window.iter().map(|(_, accuracy)| accuracy).sum::<f32>() / window.len() as f32;
        let [p50, p99] = [50, 99].map(|percent| window.get(window.len() * percent / 100).map_or(f32::NAN, |batch| batch.0));
        let [infer, train] = [0, 1].map(|index| self.devices[index].memory_info().peak as f32 / (1 << 20) as f32);
        for (tag, value) in
            [("accuracy", accuracy), ("latency_p50_ms", p50), ("latency_p99_ms", p99), ("infer_mib", infer), ("train_mib", train)]
        {
            // Without a batch since the last report, there is neither an accuracy nor a latency.
            if !value.is_nan() {
                self.writer.scalar(tag, value, step)?;
            }
        }
        writeln!(
            out,
            "step {step}: loss {loss:.4}, accuracy {accuracy:.3}, latency {p50:.2} ms, p99 {p99:.2} ms, {infer:.2} + {train:.2} MiB"
        )?;
        Ok(())
    }
}

fn main() -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let stops = stop.clone();
    ctrlc::set_handler(move || stops.store(true, Ordering::Relaxed))?;
    run(&Arguments::parse(), &stop, &mut std::io::stdout())
}
