use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(x: Tensor) -> Result<Tensor> {
    let mut y = x.clone();
    for _ in 3 {
        y = y * x;
    }
    Ok(y)
}

fn main() {}
