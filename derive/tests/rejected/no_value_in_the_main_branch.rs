use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(x: Tensor) -> Result<Tensor> {
    let y;
    if x > 0 {
    } else {
        y = x * 2;
    }
    Ok(y)
}

fn main() {}
