use gradlet_core::autograph::autograph;
use gradlet_core::Result;

#[autograph]
fn f(x: f32) -> Result<f32> {
    assert!(x, "x");
    Ok(x)
}

fn main() {}
