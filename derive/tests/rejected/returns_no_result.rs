use gradlet_core::Tensor;
use gradlet_core::autograph::autograph;

#[autograph]
fn f(x: Tensor) -> Tensor {
    x
}

fn main() {}
