//! Measures how long it takes to save and to restore 1 GiB of variables.
//!
//! `cargo run --release -p gradlet --example bench_checkpoint -- DIR` writes the checkpoint to DIR. It answers requests from its standard
//! input, one per line: `save_ms ROUNDS` or `restore_ms ROUNDS`. The answer is the median time in milliseconds. Because it works on
//! request, its measurements can be interleaved with those of another program.

use gradlet::checkpoint::Checkpoint;
use gradlet::{DType, Eager, Scope, Shape, Tensor, TensorType, Variable};
use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Number of variables.
const VARIABLES: usize = 64;
/// Number of rows, and of columns, of a variable.
const SIDE: u32 = 2048;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = arguments.as_slice() else { return Err("usage: bench_checkpoint DIR".into()) };
    std::fs::create_dir_all(folder)?;
    let prefix = Path::new(folder).join("gradlet");
    let scope = Eager::new(&gradlet::cpu());
    let variables = (0..VARIABLES).map(|index| variable(&scope, index)).collect::<gradlet::Result<Vec<_>>>()?;
    let checkpoint = Checkpoint::new().with("values", variables);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (name, rounds) = line.split_once(' ').ok_or("a request must be a name and a number")?;
        let time = median(rounds.trim().parse()?, || match name {
            // Requested first: later rounds then replace a checkpoint, and have one to restore.
            "warm_up" => Ok(checkpoint.write(&prefix).map(drop)?),
            "save_ms" => Ok(checkpoint.write(&prefix).map(drop)?),
            "restore_ms" => Ok(checkpoint.read(&prefix)?.assert_consumed().map(drop)?),
            other => Err(format!("unknown request {other}").into()),
        })?;
        println!("{time:.3}");
    }
    Ok(())
}

/// Creates a variable with pseudorandom values.
fn variable(scope: &dyn Scope, index: usize) -> gradlet::Result<Variable> {
    let tensor_type = TensorType::new(DType::F32, Shape::new(&[SIDE, SIDE])?);
    let value = Tensor::written(&scope.device(), tensor_type, |bytes| {
        let mut state = index as u32 + 1;
        for bytes in bytes.as_chunks_mut::<4>().0 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *bytes = (state as f32 / u32::MAX as f32).to_le_bytes();
        }
        Ok(())
    })?;
    Variable::new(scope, &format!("v{index}"), &value)
}

/// Calls `work` `rounds` times. Returns the median time of a call, in milliseconds.
fn median(rounds: usize, mut work: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
