//! Tests of branches, loops and arrays, eager and traced, with their gradients.

mod arrays;
mod effects;
mod random;
mod recurrent;
mod scans;
mod traced_arrays;

use gradlet_core::{Eager, Tensor, ops};

fn eager() -> Eager {
    Eager::new(&ops::portable_cpu())
}

fn floats(values: &[f32], dims: &[u32]) -> Tensor {
    Tensor::new(&ops::portable_cpu(), values, dims).unwrap()
}

fn ints(values: &[i32], dims: &[u32]) -> Tensor {
    Tensor::new(&ops::portable_cpu(), values, dims).unwrap()
}

fn f32s(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

fn i32s(tensor: &Tensor) -> Vec<i32> {
    tensor.to_vec().unwrap()
}

/// Returns the text of the error.
fn error<T>(result: gradlet_core::Result<T>) -> String {
    result.err().expect("an error").to_string()
}
