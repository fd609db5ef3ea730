use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

struct Mark(#[allow(dead_code)] i32);

#[autograph]
fn f(mut x: Tensor) -> Result<Mark> {
    let mut last = Mark(0);
    while x > 0 {
        last = Mark(2);
        x -= 1;
    }
    Ok(last)
}

fn main() {}
