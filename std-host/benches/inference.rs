//! Measures the inference of quantised models of TensorFlow Lite: the time of a call of the compiled function, on one image.
//!
//! Run it with `GRADLET_NUM_THREADS=1 cargo bench --package gradlet --features tflite --bench inference -- FILES`. Without files, it
//! measures two models of the tests.

use gradlet::{DType, Device, Eager, Result, Tensor, TensorType, tflite};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const MODELS: [&str; 2] = ["vww_96_int8.tflite", "pretrainedResnet_quant.tflite"];
const ROUNDS: usize = 2001;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut files: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if files.is_empty() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/tinyml");
        files = MODELS.iter().map(|name| folder.join(name).display().to_string()).collect();
    }
    for file in files {
        let model = tflite::Model::open(&file)?;
        println!("{file}: {:.1} µs", median(&model, &gradlet::cpu())?);
    }
    Ok(())
}

/// Returns the median of the times of calls, in microseconds.
fn median(model: &tflite::Model, device: &Device) -> Result<f64> {
    let inputs: Result<Vec<Tensor>> = model.inputs().iter().map(|input| input_of(input, device)).collect();
    let inputs = inputs?;
    let concrete = model.function()?.concrete(&Eager::new(device), &inputs)?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        black_box(concrete.run(black_box(&inputs))?);
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}

/// Returns a tensor of pseudorandom bytes for an input.
fn input_of(input: &tflite::TensorInfo, device: &Device) -> Result<Tensor> {
    let dims: Vec<u32> = input.dims.iter().map(|dim| dim.unwrap_or(1)).collect();
    let of = TensorType::new(input.dtype.unwrap_or(DType::I8), gradlet::Shape::new(&dims)?);
    let bytes: Vec<u8> = (0..of.bytes().unwrap_or_default()).map(|at| ((at as u64 * 2_654_435_761) >> 13) as u8).collect();
    Tensor::from_bytes(device, of, &bytes)
}
