use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(x: Tensor, n: i32) -> Result<Tensor> {
    if x > 0 && n {
        return Ok(x);
    }
    Ok(-x)
}

fn main() {}
