use gradlet_core::autograph::autograph;
use gradlet_core::Result;

#[autograph]
const fn f(x: i32) -> Result<i32> {
    Ok(x)
}

fn main() {}
