use gradlet_core::Result;
use gradlet_core::autograph::autograph;

#[autograph]
fn f(x: f32) -> Result<f32> {
    if x {
        return Ok(1.0);
    }
    Ok(x)
}

fn main() {}
