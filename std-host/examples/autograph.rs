//! A function whose `if` condition is a tensor, and the code that `#[autograph]` generates for it.
//!
//! `cargo run --release -p gradlet --example autograph`

use gradlet::autograph::{autograph, to_code};
use gradlet::{Eager, Function, Result, Scope, Tensor};
use std::io::Write;

#[autograph]
fn square_if_positive(mut x: Tensor) -> Result<Tensor> {
    if x > 0 {
        x = x * x;
    } else {
        x = 0;
    }
    Ok(x)
}

/// Prints the function's results for 1 and −1, and the generated code.
pub fn run(out: &mut dyn Write) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let scope = Eager::new(&gradlet::cpu());
    let f = Function::new(|_: &dyn Scope, x: Tensor| square_if_positive(x));
    let (a, b) = (Tensor::scalar(&scope.device(), 1), Tensor::scalar(&scope.device(), -1));
    writeln!(out, "{} {}", f.call(&scope, a)?, f.call(&scope, b)?)?;
    write!(out, "{}", to_code!(square_if_positive))?;
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    run(&mut std::io::stdout())
}
