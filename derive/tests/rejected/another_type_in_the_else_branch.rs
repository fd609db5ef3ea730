use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(x: Tensor) -> Result<Tensor> {
    let y = if x > 0 { x } else { "none" };
    Ok(y)
}

fn main() {}
