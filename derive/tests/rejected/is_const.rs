use gradlet_core::Result;
use gradlet_core::autograph::autograph;

#[autograph]
const fn f(x: i32) -> Result<i32> {
    Ok(x)
}

fn main() {}
