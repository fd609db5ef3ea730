//! Measures training steps on handwritten digits: a small MLP and a CNN, compiled and eager, with Adam and batches of 50. Also measures
//! compiled steps of recurrent networks and of MobileNetV2, and an inference of MobileNetV2.
//!
//! `cargo run --release -p gradlet --example bench_train -- DIR` prints one JSON object. DIR holds the MNIST files, like `data/mnist10k`.
//! With `--serve`, it answers requests from its standard input instead, one per line: `NAME STEPS`, where NAME is a figure in milliseconds.
//! The answer is the median time of STEPS steps. Because it then works on request, its measurements can be interleaved with those of
//! another program.

// A counting global allocator needs unsafe code.
#![allow(unsafe_code)]

use gradlet::artifact::Loaded;
use gradlet::datasets::Digits;
use gradlet::function::ConcreteFunction;
use gradlet::layers::{Activation, Conv2D, Dense, Flatten, GRU, LSTM, Layer, MaxPool2D, Padding, Sequential};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Artifact, Differentiate, Eager, Function, Result, Scope, Shape, Tensor, applications};
use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::hint::black_box;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

const BATCH: usize = 50;
const LEARNING_RATE: f32 = 1e-3;
const WARM_UP: usize = 5;
/// Names of the timed figures, each with the number of steps that are timed.
const STEPS: [(&str, usize); 8] = [
    ("mlp_graph_ms", 1000),
    ("mlp_eager_ms", 200),
    ("cnn_graph_ms", 60),
    ("cnn_eager_ms", 40),
    ("lstm_graph_ms", 60),
    ("gru_graph_ms", 30),
    ("mobilenet_graph_ms", 10),
    ("mobilenet_infer_ms", 30),
];

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let serve = arguments.iter().position(|argument| argument == "--serve").map(|at| arguments.remove(at)).is_some();
    let folder = arguments.first().map_or("data/mnist10k", String::as_str);
    let digits = Digits::load(Path::new(folder), "train")?;
    let scope = Eager::with_seed(&gradlet::cpu(), 1);
    if serve {
        return answer(&scope, &digits);
    }
    let mut figures = Vec::new();
    for (name, steps) in STEPS {
        figures.push((name, median(steps, &mut trainer(&scope, &digits, name)?)?));
    }
    figures.push(("eager_op_ns", eager_op(&scope)?));
    figures.push(("compiled_node_ns", compiled_node(&scope)?));
    let loaded = loaded(&scope, &digits)?;
    figures.extend(["loaded_train_ratio", "loaded_infer_ratio"].into_iter().zip(loaded));
    let memory = memory(&scope, &digits)?;
    figures.extend(memory.map(|(name, bytes)| (name, bytes as f64)));
    let lines: Vec<String> = figures.iter().map(|(name, value)| format!("  \"{name}\": {value}")).collect();
    println!("{{\n{}\n}}", lines.join(",\n"));
    Ok(())
}

/// Prints `ready`, then answers requests from standard input until the input ends. A second request for a figure continues to train the
/// same model.
fn answer(scope: &Eager, digits: &Digits) -> std::result::Result<(), Box<dyn Error>> {
    println!("ready");
    let mut trainers = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (name, steps) = line.split_once(' ').ok_or("a request must be a name and a number of steps")?;
        let known = trainers.iter().position(|(known, _)| known == name);
        let at = match known {
            Some(at) => at,
            None => {
                let mut step = trainer(scope, digits, name)?;
                (0..WARM_UP).try_for_each(|_| step())?;
                trainers.push((name.to_string(), step));
                trainers.len() - 1
            }
        };
        println!("{}", median(steps.parse()?, &mut trainers[at].1)?);
    }
    Ok(())
}

type Step = Box<dyn FnMut() -> Result<()>>;
type Traced = Function<(Tensor, Tensor), Tensor>;

fn cnn() -> Sequential {
    let conv = |filters| Conv2D::new(filters, [5, 5]).padding(Padding::Same).activation(Activation::Relu);
    Sequential::new()
        .with(conv(32))
        .with(MaxPool2D::new([2, 2]))
        .with(conv(64))
        .with(MaxPool2D::new([2, 2]))
        .with(Flatten)
        .with(Dense::new(1024).activation(Activation::Relu))
        .with(Dense::new(10))
}

fn sequential(scope: &Eager, model: Sequential, picture: &[u32]) -> Result<Arc<dyn Layer>> {
    model.build(scope, &Shape::new(&[&[1], picture].concat())?)?;
    Ok(Arc::new(model))
}

fn mobilenet(scope: &Eager, side: u32, alpha: f64, classes: u32) -> Result<Arc<dyn Layer>> {
    let network = applications::mobilenet_v2().input_shape([side, side, 3]).alpha(alpha).classes(classes);
    Ok(Arc::new(network.classifier_activation(Activation::Linear).build(scope)?))
}

/// Returns the model of the figure `name`, and the shape of a picture.
fn model(scope: &Eager, name: &str) -> Result<(Arc<dyn Layer>, Vec<u32>)> {
    let recurrent = |model: Sequential| sequential(scope, model.with(Dense::new(10)), &[28, 28]);
    Ok(match name.split('_').next() {
        Some("cnn") => (sequential(scope, cnn(), &[28, 28, 1])?, vec![28, 28, 1]),
        Some("lstm") => (recurrent(Sequential::new().with(LSTM::new(64)))?, vec![28, 28]),
        Some("gru") => {
            let layers = Sequential::new().with(GRU::new(64).return_sequences(true)).with(GRU::new(64));
            (recurrent(layers)?, vec![28, 28])
        }
        Some("mobilenet") if name.contains("infer") => (mobilenet(scope, 224, 1.0, 1000)?, vec![224, 224, 3]),
        Some("mobilenet") => (mobilenet(scope, 96, 0.35, 10)?, vec![96, 96, 3]),
        _ => (sequential(scope, applications::mlp(&[100], 10), &[784])?, vec![784]),
    })
}

fn step(scope: &dyn Scope, model: &dyn Layer, adam: &Adam, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let tape = scope.with_training(true).tape();
    let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(y, &model.call(&tape, x)?)?;
    let gradients = tape.gradient(&loss, &model.trainable_variables())?;
    adam.apply_gradients(scope, &gradients)?;
    Ok(loss)
}

fn traced(model: &Arc<dyn Layer>) -> Traced {
    let (model, adam) = (model.clone(), Adam::new(LEARNING_RATE));
    Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| step(scope, &*model, &adam, &x, &y))
}

fn batches(scope: &Eager, digits: &Digits, picture: &[u32], batch: usize) -> Result<Vec<(Tensor, Tensor)>> {
    let device = scope.device();
    if picture.last() == Some(&3) {
        // The digits are too small. The time of a step does not depend on the values.
        let dims = [&[batch as u32], picture].concat();
        let count = dims.iter().product::<u32>();
        let pixels: Vec<f32> = (0..count).map(|at| (at.wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0).collect();
        let labels: Vec<i32> = (0..batch as i32).map(|label| label % 10).collect();
        return Ok(vec![(Tensor::new(&device, &pixels, &dims)?, Tensor::new(&device, &labels, &[batch as u32])?)]);
    }
    let order: Vec<usize> = (0..digits.len().min(20 * batch)).collect();
    order.chunks_exact(batch).map(|indices| digits.batch(&device, indices, picture)).collect()
}

/// Returns a function that does one training step of a new model. `name` is a figure: it selects the model, and compiled or eager
/// execution. Each step uses the next batch.
fn trainer(scope: &Eager, digits: &Digits, name: &str) -> Result<Step> {
    let (model, picture) = model(scope, name)?;
    let batch = match picture[..] {
        [224, ..] => 1,
        [96, ..] => 16,
        [28, 28] => 32,
        _ => BATCH,
    };
    let mut batches = batches(scope, digits, &picture, batch)?.into_iter().cycle();
    let mut next = move || batches.next().ok_or(gradlet::Error::message("there are too few digits".to_string()));
    if name.contains("infer") {
        let (scope, infer) = (scope.clone(), Function::new(move |scope: &dyn Scope, x: Tensor| model.call(scope, &x)));
        return Ok(Box::new(move || infer.call(&scope, next()?.0)?.to_vec::<f32>().map(drop)));
    }
    if name.ends_with("graph_ms") {
        let (scope, traced) = (scope.clone(), traced(&model));
        return Ok(Box::new(move || traced.call(&scope, next()?)?.item::<f32>().map(drop)));
    }
    let (scope, adam) = (scope.clone(), Adam::new(LEARNING_RATE));
    Ok(Box::new(move || {
        let (x, y) = next()?;
        step(&scope, &*model, &adam, &x, &y)?.item::<f32>().map(drop)
    }))
}

/// Runs `steps` steps after a warm-up. Returns the median time of a step, in milliseconds.
fn median(steps: usize, step: &mut Step) -> Result<f64> {
    let mut times = Vec::with_capacity(steps);
    for index in 0..WARM_UP + steps {
        let start = Instant::now();
        step()?;
        if index >= WARM_UP {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Returns the time of one call in nanoseconds: the mean of `calls` calls, in the fastest of 50 rounds. Other programs on the machine
/// therefore do not distort it.
fn best(calls: u32, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..50 {
        let start = Instant::now();
        (0..calls).try_for_each(|_| call())?;
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(calls));
    }
    Ok(best)
}

/// Returns the time of an eager addition of one element, in nanoseconds.
fn eager_op(scope: &Eager) -> Result<f64> {
    let one = Tensor::new(&scope.device(), &[1.0f32], &[1])?;
    best(20_000, || black_box(&one).add(&one).map(drop))
}

/// Returns the time that each node adds to a compiled call, in nanoseconds.
fn compiled_node(scope: &Eager) -> Result<f64> {
    let one = Tensor::new(&scope.device(), &[1.0f32], &[1])?;
    let chain = |nodes: u32| {
        let function = Function::new(move |_: &dyn Scope, x: Tensor| (0..nodes).try_fold(x.clone(), |sum, _| sum.add(&x)));
        let (concrete, inputs) = (function.concrete(scope, &one)?, [one.clone()]);
        best(500, || concrete.run(black_box(&inputs)).map(drop))
    };
    Ok((chain(1024)? - chain(64)?) / 960.0)
}

/// Returns the times of the CNN's training step and inference, exported and loaded again on the same device, each divided by the time of
/// the function that it was exported from. The two take turns.
fn loaded(scope: &Eager, digits: &Digits) -> Result<[f64; 2]> {
    let (cnn, picture) = model(scope, "cnn")?;
    let (x, y) = batches(scope, digits, &picture, BATCH)?.swap_remove(0);
    let train = traced(&cnn).concrete(scope, &(x.clone(), y.clone()))?;
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| cnn.call(scope, &x)).concrete(scope, &x)?;
    let mut artifact = Artifact::new();
    artifact.signature("train", &train, &["x", "y"], &["loss"])?.signature("infer", &infer, &["x"], &["logits"])?;
    let loaded = Loaded::new(&artifact.to_bytes()?, None)?.on(&scope.device())?;
    let ratio = |function: &ConcreteFunction, name: &str, inputs: &[Tensor], rounds: usize| {
        let signature = loaded.signature(name)?;
        let time = |call: &dyn Fn() -> Result<Vec<Tensor>>| {
            let start = Instant::now();
            call().map(|outputs| (black_box(outputs), start.elapsed().as_secs_f64()).1)
        };
        let mut ratios = Vec::new();
        for round in 0..rounds {
            // The two alternate in going first.
            let (own, other) = if round % 2 == 0 {
                let own = time(&|| signature.call(inputs))?;
                (own, time(&|| function.run(inputs))?)
            } else {
                let other = time(&|| function.run(inputs))?;
                (time(&|| signature.call(inputs))?, other)
            };
            ratios.push(own / other);
        }
        ratios.drain(..WARM_UP);
        ratios.sort_by(f64::total_cmp);
        Ok::<f64, gradlet::Error>(ratios[ratios.len() / 2])
    };
    Ok([ratio(&train, "train", &[x.clone(), y], 80)?, ratio(&infer, "infer", &[x], 160)?])
}

/// Returns four figures, each with its name. The first is the CNN's peak heap bytes during a compiled step, without the bytes that were in
/// use before the model was created. The others are the bytes that the planner reports for it, and the number of allocations in a step of
/// each model after warm-up.
fn memory(scope: &Eager, digits: &Digits) -> Result<[(&'static str, usize); 4]> {
    let inputs = batches(scope, digits, &[28, 28, 1], BATCH)?;
    let [x, y] = [inputs[0].0.clone(), inputs[0].1.clone()];
    scope.device().free_unused();
    COUNTING.store(true, Relaxed);
    let (cnn, _) = model(scope, "cnn")?;
    let train = traced(&cnn);
    let concrete = train.concrete(scope, &(x.clone(), y.clone()))?;
    (0..3).try_for_each(|_| train.call(scope, (x.clone(), y.clone())).map(drop))?;
    PEAK.store(LIVE.load(Relaxed), Relaxed);
    let before = ALLOCATIONS.load(Relaxed);
    train.call(scope, (x.clone(), y.clone()))?;
    let cnn_allocations = ALLOCATIONS.load(Relaxed) - before;
    let peak = PEAK.load(Relaxed).max(0) as usize;

    let (mlp, picture) = model(scope, "mlp")?;
    let one = batches(scope, digits, &picture, 1)?.swap_remove(0);
    let train = traced(&mlp);
    (0..3).try_for_each(|_| train.call(scope, one.clone()).map(drop))?;
    let before = ALLOCATIONS.load(Relaxed);
    train.call(scope, one)?;
    let mlp_allocations = ALLOCATIONS.load(Relaxed) - before;
    COUNTING.store(false, Relaxed);

    let planned = concrete.planned_bytes()?;
    Ok([
        ("cnn_peak_bytes", peak),
        ("cnn_planned_bytes", planned),
        ("cnn_graph_step_allocations", cnn_allocations),
        ("mlp_graph_step_allocations", mlp_allocations),
    ])
}

/// The system allocator. It counts allocations and bytes while [`COUNTING`] is true.
struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

fn count(bytes: isize) {
    if COUNTING.load(Relaxed) {
        let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
        if bytes > 0 {
            PEAK.fetch_max(live, Relaxed);
            ALLOCATIONS.fetch_add(1, Relaxed);
        }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(bytes, layout) }
    }

    unsafe fn realloc(&self, bytes: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(-(layout.size() as isize));
        count(size as isize);
        unsafe { System.realloc(bytes, layout, size) }
    }
}
