use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(x: Option<Tensor>) -> Result<Tensor> {
    match x {
        Some(x) if x > 0 => Ok(x),
        Some(x) => Ok(-x),
        None => Err(gradlet_core::Error::message("none")),
    }
}

fn main() {}
