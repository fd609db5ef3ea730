//! Branches, loops, checks and messages on a GPU.

use crate::hiding::control::collatz;
use gradlet_core::{Differentiate, Eager, Error, Function, Print, Result, Scope, Tensor, Variable};
use gradlet_tests::gpu;
use std::sync::{Arc, Mutex};

#[test]
fn the_data_decide_branches_and_loops() -> Result<()> {
    let device = gpu::device()?;
    let scope = Eager::new(&device);
    let numbers = |results: Vec<Tensor>| results.iter().map(|result| result.item::<i32>()).collect::<Result<Vec<_>>>();
    assert_eq!(numbers(Function::new(collatz).call(&scope, Tensor::scalar(&device, 27i32))?)?, [111, 9232]);
    assert_eq!(numbers(collatz(&scope, Tensor::scalar(&device, 6i32))?)?, [8, 16]);
    Ok(())
}

/// A label out of range, a division by zero and a failed check are the CPU's errors. Nothing after them changes a variable, and the next
/// run is whole.
#[test]
fn refused_data_are_the_cpus_errors() -> Result<()> {
    let device = gpu::device()?;
    let scope = Eager::new(&device);
    let total = Variable::new(&scope, "total", &Tensor::scalar(&device, 0.0f32))?;
    let own = total.clone();
    let row = Function::new(move |scope: &dyn Scope, (x, index): (Tensor, Tensor)| {
        let row = x.exp()?.gather(&index, 0)?;
        scope.assign_add(&own, &row.sum(&[], false)?)?;
        Ok(row)
    });
    let x = Tensor::full(&device, 0.0f32, &[4, 3])?;
    let index = |number: i32| Tensor::new(&device, &[1, number], &[2]);
    row.call(&scope, (x.clone(), index(3)?))?;
    let compiled = row.call(&scope, (x.clone(), index(4)?)).unwrap_err();
    let eager = x.gather(&index(4)?, 0).unwrap_err();
    for error in [&compiled, &eager] {
        let found = matches!(error.root(), Error::IndexOutOfRange { position: 1, value: 4, limit: 4, .. });
        assert!(found, "{error}");
    }
    assert_eq!(scope.read(&total)?.item::<f32>()?, 6.0);
    row.call(&scope, (x, index(0)?))?;
    assert_eq!(scope.read(&total)?.item::<f32>()?, 12.0);

    let [a, zero] = [[7, 8], [2, 0]].map(|numbers: [i32; 2]| Tensor::new(&device, &numbers, &[2]).unwrap());
    let error = a.floordiv(&zero).unwrap_err();
    assert!(matches!(error.root(), Error::DivisionByZero { position: 1, .. }), "{error}");
    let odd = Tensor::new(&device, &[1.0f32, f32::NAN], &[2])?;
    let error = odd.check_numerics("the input").unwrap_err();
    assert!(matches!(error.root(), Error::NotFinite { position: 1, .. }) && error.to_string().contains("the input"), "{error}");
    Ok(())
}

#[test]
fn programs_print_what_is_on_the_gpu() -> Result<()> {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = text.clone();
    let device = gpu::device()?.printing(move |part| *sink.lock().unwrap() += &part.to_string());
    let root = Function::new(|scope: &dyn Scope, x: Tensor| {
        scope.print("x is {}", &[&x])?;
        x.sqrt()
    });
    assert_eq!(root.call(&Eager::new(&device), Tensor::scalar(&device, 0.25f32))?.item::<f32>()?, 0.5);
    assert_eq!(*text.lock().unwrap(), "x is 0.25\n");
    Ok(())
}

/// Higher gradients run on the GPU too.
#[test]
fn second_derivatives() -> Result<()> {
    let device = gpu::device()?;
    let scope = Eager::new(&device);
    let outer = scope.tape();
    let x = outer.watch(&Tensor::new(&device, &[0.5f32, -1.0], &[2])?)?;
    let inner = outer.tape();
    let x = inner.watch(&x)?;
    let y = x.square()?.mul(&x)?;
    let first = inner.gradient(&y.sum(&[], false)?, &x)?.ok_or(Error::Internal)?;
    let second = outer.gradient(&first.sum(&[], false)?, &x)?.ok_or(Error::Internal)?;
    assert_eq!(second.to_vec::<f32>()?, [3.0, -6.0]);
    Ok(())
}
