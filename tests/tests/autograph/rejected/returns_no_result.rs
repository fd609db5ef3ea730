use gradlet_core::autograph::autograph;
use gradlet_core::Tensor;

#[autograph]
fn f(x: Tensor) -> Tensor {
    x
}

fn main() {}
