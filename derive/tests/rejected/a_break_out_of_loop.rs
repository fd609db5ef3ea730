use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(mut x: Tensor) -> Result<Tensor> {
    loop {
        x = x * 2;
        if x > 100 {
            break;
        }
    }
    Ok(x)
}

fn main() {}
