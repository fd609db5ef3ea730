use gradlet_core::Tensor;
use gradlet_core::autograph::autograph;

#[autograph]
fn f(_x: Tensor) {}

fn main() {}
