use gradlet_core::autograph::autograph;
use gradlet_core::{Result, Tensor};

#[autograph]
fn f(x: Tensor) -> Result<Tensor> {
    'outer: for row in &x {
        for element in &row {
            if element > 2.0 {
                break 'outer;
            }
        }
    }
    Ok(x)
}

fn main() {}
