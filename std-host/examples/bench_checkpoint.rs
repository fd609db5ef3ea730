//! Measures how fast a GiB of variables is saved and restored.
//!
//! `cargo run --release -p gradlet --example bench_checkpoint -- DIR` answers requests from its standard input, one a line: `save_ms`
//! or `restore_ms`, and how often that is to be done; the answer is the median in milliseconds. So two programs can take turns. The
//! checkpoint is written to DIR.

use gradlet::checkpoint::Checkpoint;
use gradlet::{DType, Eager, Scope, Shape, Tensor, TensorType, Variable};
use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How many variables there are, and the rows and columns of each.
const VARIABLES: usize = 64;
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
        let (name, rounds) = line.split_once(' ').ok_or("a request is a name and a number")?;
        let time = median(rounds.trim().parse()?, || match name {
            // Once before the rest, so that there is something to replace and to restore.
            "warm_up" => Ok(checkpoint.write(&prefix).map(drop)?),
            "save_ms" => Ok(checkpoint.write(&prefix).map(drop)?),
            "restore_ms" => Ok(checkpoint.read(&prefix)?.assert_consumed().map(drop)?),
            other => Err(format!("{other} is not known").into()),
        })?;
        println!("{time:.3}");
    }
    Ok(())
}

/// A variable of numbers that do not repeat soon.
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

/// The median time of so many rounds, in milliseconds.
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
