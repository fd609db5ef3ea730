use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(x: Tensor) -> Result<Tensor> {
    let y = x.add(&if x > 0 { return Ok(x) } else { x.clone() })?;
    Ok(y)
}

fn main() {}
