use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
async fn f(x: Tensor) -> Result<Tensor> {
    Ok(x)
}

fn main() {}
