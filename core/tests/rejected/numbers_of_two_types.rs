use gradlet_core::Result;
use gradlet_core::autograph::autograph;

#[autograph]
fn f(x: f32, n: i32) -> Result<f32> {
    Ok(x * n)
}

fn main() {}
