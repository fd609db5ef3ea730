use gradlet_core::autograph::autograph;
use gradlet_core::Tensor;

#[autograph]
fn f(_x: Tensor) {}

fn main() {}
