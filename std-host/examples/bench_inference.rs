//! Measures the inference of models of TensorFlow Lite.
//!
//! `cargo run --release -p gradlet --features tflite --example bench_inference -- DIR` answers requests from its standard input, one per
//! line. `MODEL COUNT` runs the file MODEL of DIR COUNT times on one pseudorandom input, and answers with the median of the times in
//! microseconds, or with `failed` and the reason. Because it works on request, its measurements can be interleaved with those of another
//! program. The environment variable GRADLET_NUM_THREADS sets the number of threads.

use gradlet::function::ConcreteFunction;
use gradlet::{DType, Eager, Result, Shape, Tensor, TensorType, tflite};
use std::collections::HashMap;
use std::hint::black_box;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A compiled model, and its inputs.
type Loaded = (Arc<ConcreteFunction>, Vec<Tensor>);

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = arguments.as_slice() else { return Err("usage: bench_inference DIR".into()) };
    let mut models = HashMap::new();
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (name, count) = line.rsplit_once(' ').ok_or("a request must be a name and a number")?;
        match median(&mut models, &Path::new(folder).join(name), count.trim().parse()?) {
            Ok(time) => println!("{time:.2}"),
            Err(error) => println!("failed {}", error.to_string().replace('\n', " ")),
        }
    }
    Ok(())
}

/// Returns the median of the times of `count` calls, in microseconds.
fn median(models: &mut HashMap<String, Loaded>, path: &Path, count: usize) -> Result<f64> {
    let name = path.display().to_string();
    if !models.contains_key(&name) {
        models.insert(name.clone(), load(path)?);
    }
    let (model, inputs) = &models[&name];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count.max(1) {
        let start = Instant::now();
        black_box(model.run(black_box(inputs))?);
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn load(path: &Path) -> Result<Loaded> {
    let model = tflite::Model::open(path)?;
    let inputs = model.inputs().iter().map(input_of).collect::<Result<Vec<Tensor>>>()?;
    Ok((model.function()?.concrete(&Eager::new(&gradlet::cpu()), &inputs)?, inputs))
}

/// Returns an input: floats from 0 to 1, or pseudorandom bytes. Unknown dimensions are 1.
fn input_of(input: &tflite::TensorInfo) -> Result<Tensor> {
    let dims: Vec<u32> = input.dims.iter().map(|dim| dim.unwrap_or(1)).collect();
    let of = TensorType::new(input.dtype.unwrap_or(DType::I8), Shape::new(&dims)?);
    let byte = |at: usize| ((at as u64 * 2_654_435_761) >> 13) as u8;
    if of.dtype == DType::F32 {
        let floats: Vec<f32> = (0..of.shape.elements().unwrap_or(0)).map(|at| f32::from(byte(at)) / 255.0).collect();
        return Tensor::new(&gradlet::cpu(), &floats, &dims);
    }
    let bytes: Vec<u8> = (0..of.bytes().unwrap_or_default()).map(byte).collect();
    Tensor::from_bytes(&gradlet::cpu(), of, &bytes)
}
