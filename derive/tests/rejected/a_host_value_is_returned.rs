use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

struct Mark(#[allow(dead_code)] i32);

#[autograph]
fn f(x: Tensor) -> Result<Mark> {
    if x > 0 {
        return Ok(Mark(1));
    }
    Ok(Mark(2))
}

fn main() {}
