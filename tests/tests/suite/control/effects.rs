//! Tests of prints in programs whose loops overwrite variables.

use crate::control::{eager, floats};
use gradlet_core::control::{WhileOptions, while_loop};
use gradlet_core::{Eager, Function, Print, Result, Scope, Tensor, Variable, ops};
use std::sync::{Arc, Mutex};

#[test]
fn a_value_is_printed_after_a_loop_overwrote_its_variable() -> Result<()> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = lines.clone();
    let device = ops::portable_cpu().printing(move |text| heard.lock().unwrap().push(text.to_string()));
    let memory = Variable::new(&eager(), "memory", &floats(&[1.0], &[1]))?;
    let inner = memory.clone();
    let f = Function::new(move |scope: &dyn Scope, n: Tensor| {
        let before = scope.read(&inner)?;
        while_loop(
            scope,
            WhileOptions::default(),
            n,
            |n| n.like(0.0)?.less(n),
            |n| {
                scope.print("left {}", &[&n])?;
                scope.assign(&inner, &scope.read(&inner)?.mul_scalar(2.0)?)?;
                n.add_scalar(-1.0)
            },
        )?;
        scope.print("before {}", &[&before])?;
        scope.read(&inner)
    });
    let y = f.call(&Eager::new(&device), Tensor::scalar(&device, 2i32))?;
    assert_eq!(y.to_vec::<f32>()?, [4.0]);
    assert_eq!(lines.lock().unwrap().concat(), "left 2\nleft 1\nbefore [1]\n");
    Ok(())
}
