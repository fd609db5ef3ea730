use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(mut x: Tensor) -> Result<Tensor> {
    let y = loop {
        x = x * 2;
        if x > 100 {
            break x;
        }
    };
    Ok(y)
}

fn main() {}
