use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(x: Tensor) -> Result<Tensor> {
    let mut sum = 0;
    for row in &x {
        sum += row;
    }
    Ok(x * sum)
}

fn main() {}
