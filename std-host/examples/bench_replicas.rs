//! Measures the throughput of two replicas, each on a logical CPU with one thread, against one device with two threads: training steps of
//! the CNN of `bench_train`, with Adam and SGD, and batches of 2 × 50 images.
//!
//! `cargo run --release -p gradlet --example bench_replicas` prints the medians of steps that the two take in turns.

use gradlet::config::{Context, Environment, LogicalDeviceConfiguration};
use gradlet::distribute::MirroredStrategy;
use gradlet::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, Padding, Sequential};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, Optimizer, Sgd};
use gradlet::{DType, Differentiate, Eager, Function, Result, Scope, Shape, Tensor};
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 15;
const STEPS: usize = 4;
const BATCH: u32 = 100;

type Step = Function<(Tensor, Tensor), Tensor>;

fn main() -> Result<()> {
    for (name, adam) in [("SGD", false), ("Adam", true)] {
        let (alone, together) = race(adam)?;
        let [alone, together] = [alone, together].map(|seconds| f64::from(BATCH) / seconds);
        let ratio = together / alone;
        println!("{name:4}: one device {alone:6.0} images/s, two replicas {together:6.0} images/s, ratio {ratio:.2}");
    }
    Ok(())
}

/// Returns the median times of a step on one device and on two replicas, in seconds.
fn race(adam: bool) -> Result<(f64, f64)> {
    let of = |threads: &[usize]| {
        let context = Context::with_devices([], &Environment::default());
        let logical: Vec<_> = threads.iter().map(|&threads| LogicalDeviceConfiguration::new().threads(threads)).collect();
        context.set_logical_device_configuration(&context.list_physical_devices(None)[0], &logical)?;
        Ok::<_, gradlet::Error>(context)
    };
    let alone = of(&[2])?.scope()?;
    let strategy = MirroredStrategy::new(&of(&[1, 1])?, &["CPU:0", "CPU:1"])?;
    let x = Tensor::random_uniform(&Eager::new(&gradlet::cpu()), &[BATCH, 28, 28, 1])?;
    let y = Tensor::new(&gradlet::cpu(), &(0..BATCH as i32).map(|label| label % 10).collect::<Vec<_>>(), &[BATCH])?;
    let (single, mirrored) = (step(&alone, adam)?, step(&strategy.scope(), adam)?);
    let whole = (x.to(&alone.device())?, y.to(&alone.device())?);
    let parts = strategy.split(&(x, y))?;
    let mut one = || single.call(&alone, whole.clone()).map(drop);
    let mut two = || {
        let own = |rank: usize| parts.get(rank).cloned().ok_or_else(|| gradlet::Error::message("there is no part"));
        strategy.run(|replica| mirrored.call(replica, own(replica.replica_id())?).map(drop)).map(drop)
    };
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let measured = [time(&mut one)?, time(&mut two)?];
        if round > 0 {
            times.iter_mut().zip(measured).for_each(|(times, time)| times.push(time));
        }
    }
    let [alone, together] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    Ok((alone, together))
}

fn time(step: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    (0..STEPS).try_for_each(|_| step())?;
    Ok(start.elapsed().as_secs_f64() / STEPS as f64)
}

/// Creates a training step of the CNN, with its variables in `scope`.
fn step(scope: &Eager, adam: bool) -> Result<Step> {
    let conv = |filters| Conv2D::new(filters, [5, 5]).padding(Padding::Same).activation(Activation::Relu);
    let model = Sequential::new()
        .with(conv(32))
        .with(MaxPool2D::new([2, 2]))
        .with(conv(64))
        .with(MaxPool2D::new([2, 2]))
        .with(Flatten)
        .with(Dense::new(1024).activation(Activation::Relu))
        .with(Dense::new(10));
    model.build(scope, &Shape::new(&[1, 28, 28, 1])?)?;
    let optimizer: Arc<dyn Optimizer> = if adam { Arc::new(Adam::new(0.001)) } else { Arc::new(Sgd::new(0.01)) };
    optimizer.build(scope, &model)?;
    let loss = SparseCategoricalCrossentropy::default().from_logits(true);
    Ok(Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let tape = scope.tape();
        let mean = loss.call(&y, &model.apply(&tape, &x)?)?;
        // The sum of the replicas' losses is the mean over the whole batch.
        let share = mean.mul_scalar(f64::from(x.dims()[0]) / f64::from(BATCH))?;
        optimizer.apply_gradients(scope, &tape.gradient(&share, &model.trainable_variables())?)?;
        mean.cast(DType::F32)
    }))
}
