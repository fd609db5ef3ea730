use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(mut x: Tensor) -> Result<Tensor> {
    #[max_iterations]
    while x < 10 {
        x += 1;
    }
    Ok(x)
}

fn main() {}
