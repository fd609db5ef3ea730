use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

struct Mark(#[allow(dead_code)] i32);

#[autograph]
fn f(x: Tensor) -> Result<Mark> {
    let sign = if x > 0 { Mark(1) } else { Mark(2) };
    Ok(sign)
}

fn main() {}
