use gradlet_core::Result;
use gradlet_core::autograph::autograph;

#[autograph]
fn f(x: f32) -> Result<f32> {
    assert!(x, "x");
    Ok(x)
}

fn main() {}
