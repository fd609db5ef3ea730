use gradlet_core::Result;
use gradlet_core::autograph::autograph;

#[autograph]
fn f(mut x: i32) -> Result<i32> {
    while x {
        x -= 1;
    }
    Ok(x)
}

fn main() {}
