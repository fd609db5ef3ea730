//! Measures products of matrices, memory-bound kernels, training steps and latencies on the first NVIDIA GPU.
//!
//! `cargo xtask bench cuda` starts it, and prints its figures as a table. It answers requests from its standard input, one per line:
//! `WORK/PRECISION/SIZES STEPS`, such as `gemm/tf32/1024 20`. The answer is `failed` with a reason, or STEPS times in milliseconds.
//! PRECISION is `f32`, `tf32`, `bf16` or `f16`. Models compute in bf16 by the dtype policy `mixed_bfloat16`.

#[path = "bench_cuda/kernels.rs"]
mod kernels;
#[path = "bench_cuda/models.rs"]
mod models;

use gradlet::cuda::{Driver, Gpu, Options};
use gradlet::{DType, DTypePolicy, Device, Eager, Error, Result, Scope, Tensor};
use std::io::{BufRead, Write};
use std::time::Instant;

/// Most steps that warm up before those that are timed.
const WARM_UP: usize = 10;
/// Least time of a measurement that repeats a call, in milliseconds.
const LEAST: f64 = 5.0;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let driver = Driver::load()?;
    let gpu = driver.gpus()?.into_iter().find(Gpu::is_supported).ok_or("the driver has no GPU of compute capability 7.0 or later")?;
    Ok(serve(&gpu, std::io::stdin().lock(), &mut std::io::stdout())?)
}

/// A function that does one measurement, and returns its time in milliseconds.
pub type Step = Box<dyn FnMut() -> Result<f64>>;

/// Prints `ready`, then answers requests until the input ends. The work of a request is kept until there is a request for other work.
pub fn serve(gpu: &Gpu, requests: impl BufRead, answers: &mut dyn Write) -> std::io::Result<()> {
    writeln!(answers, "ready gradlet {}", env!("CARGO_PKG_VERSION"))?;
    let mut current = None;
    for line in requests.lines() {
        match answer(gpu, &line?, &mut current) {
            Ok(times) => writeln!(answers, "{}", times.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))?,
            Err(error) => writeln!(answers, "failed {}", error.to_string().replace('\n', " "))?,
        }
        answers.flush()?;
    }
    Ok(())
}

fn answer(gpu: &Gpu, line: &str, current: &mut Option<(String, Step)>) -> Result<Vec<f64>> {
    let unreadable = || Error::message(format!("a request must be like `gemm/f32/1024 20`, not {line:?}"));
    let (name, steps) = line.split_once(' ').ok_or_else(unreadable)?;
    let steps: usize = steps.parse().map_err(|_| unreadable())?;
    if current.as_ref().is_none_or(|(known, _)| known != name) {
        // The memory of the work before is free for this one.
        *current = None;
        let request = Request::parse(gpu, name)?.ok_or_else(unreadable)?;
        let mut step = request.step()?;
        (0..steps.min(WARM_UP)).try_for_each(|_| step().map(drop))?;
        *current = Some((name.into(), step));
    }
    let Some((_, step)) = current else { return Err(unreadable()) };
    (0..steps).map(|_| step()).collect()
}

/// The work of a request.
pub struct Request<'a> {
    work: &'a str,
    sizes: Vec<u32>,
    dtype: DType,
    policy: DTypePolicy,
    device: Device,
}

impl<'a> Request<'a> {
    /// Parses `WORK/PRECISION/SIZES`, and creates a device of that precision.
    fn parse(gpu: &Gpu, name: &'a str) -> Result<Option<Request<'a>>> {
        let [work, precision, sizes] = name.split('/').collect::<Vec<_>>()[..] else { return Ok(None) };
        let (dtype, policy) = match precision {
            "f32" | "tf32" => (DType::F32, DTypePolicy::Float32),
            "bf16" => (DType::Bf16, DTypePolicy::MixedBfloat16),
            "f16" => (DType::F16, DTypePolicy::MixedFloat16),
            _ => return Ok(None),
        };
        let Ok(sizes) = sizes.split('x').map(str::parse).collect() else { return Ok(None) };
        let device = gpu.create("GPU:0", &Options { tf32: precision == "tf32", ..Options::default() })?;
        Ok(Some(Request { work, sizes, dtype, policy, device }))
    }

    fn step(&self) -> Result<Step> {
        let scope = Eager::with_seed(&self.device, 1);
        match kernels::step(self, &scope)? {
            Some(step) => Ok(step),
            None => models::step(self, &scope)?.ok_or_else(|| self.unknown()),
        }
    }

    fn unknown(&self) -> Error {
        Error::message(format!("there is no work {} with {} sizes", self.work, self.sizes.len()))
    }
}

/// Returns the milliseconds of `call` and of the work that it gives to the device.
fn time(device: &Device, call: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    call()?;
    device.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// Returns a step that is one call.
fn once(scope: &Eager, mut call: impl FnMut() -> Result<()> + 'static) -> Step {
    let device = scope.device();
    Box::new(move || time(&device, &mut call))
}

/// Returns a step that is one call, whose time ends when it returns. The rest of the device's work is not part of it.
fn answered(scope: &Eager, mut call: impl FnMut() -> Result<()> + 'static) -> Step {
    let device = scope.device();
    Box::new(move || {
        let start = Instant::now();
        call()?;
        let elapsed = start.elapsed();
        device.synchronize()?;
        Ok(elapsed.as_secs_f64() * 1e3)
    })
}

/// Returns a step that repeats a call for some milliseconds, then waits for the device. Its time is the mean of the calls.
fn repeated(scope: &Eager, call: impl Fn() -> Result<()> + 'static) -> Step {
    let (device, mut calls) = (scope.device(), 1u32);
    Box::new(move || {
        loop {
            let elapsed = time(&device, || (0..calls).try_for_each(|_| call()))?;
            if elapsed >= LEAST {
                return Ok(elapsed / f64::from(calls));
            }
            calls *= 2;
        }
    })
}

/// Returns `count` numbers between -1 and 1. A GPU's clock depends on the values: zeros would be too fast.
fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
}

/// Returns a tensor of such numbers.
fn random(device: &Device, dims: &[u32]) -> Result<Tensor> {
    Tensor::new(device, &numbers(dims.iter().product::<u32>() as usize), dims)
}
