use gradlet_core::autograph::autograph;
use gradlet_core::Result;

#[autograph]
fn f(mut x: i32) -> Result<i32> {
    while x {
        x -= 1;
    }
    Ok(x)
}

fn main() {}
