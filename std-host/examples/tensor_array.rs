//! A tensor array in a traced function. `write` returns a new array, and leaves the old one as it was.
//!
//! `cargo run --release -p gradlet --example tensor_array`

use gradlet::{DType, Eager, Function, Scope, Tensor, TensorArray};
use std::io::Write;

/// Prints the elements of a tensor array that a traced function writes and reads.
pub fn run(out: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
    let scope = Eager::new(&gradlet::cpu());
    let array_write_and_read = Function::new(|scope: &dyn Scope, ()| {
        let mut arr = TensorArray::new(scope, DType::F32, 3, false);
        arr = arr.write(0, &Tensor::scalar(&scope.device(), 0.0f32))?;
        arr = arr.write(1, &Tensor::scalar(&scope.device(), 1.0f32))?;
        arr = arr.write(2, &Tensor::scalar(&scope.device(), 2.0f32))?;
        Ok((arr.read(0)?, arr.read(1)?, arr.read(2)?))
    });
    let (a, b, c) = array_write_and_read.call(&scope, ())?;
    writeln!(out, "{a} {b} {c}")?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(&mut std::io::stdout())
}
