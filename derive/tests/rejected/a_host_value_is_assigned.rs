use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

struct Mark(#[allow(dead_code)] i32);

#[autograph]
fn f(x: Tensor) -> Result<Mark> {
    let mut sign = Mark(0);
    if x > 0 {
        sign = Mark(1);
    }
    Ok(sign)
}

fn main() {}
