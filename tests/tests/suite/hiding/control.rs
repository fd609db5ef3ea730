//! Branches, loops, arrays and effects on a device that hides its memory.

use crate::cnn::{Bits, bytes};
use gradlet_core::control::{WhileOptions, cond, while_loop};
use gradlet_core::layers::{LSTM, Layer, Module};
use gradlet_core::tensor::Element;
use gradlet_core::{DType, Device, Differentiate, Eager, Error, Function, Print, Result, Scope, Tensor, TensorArray, ops};
use gradlet_tests::hiding::Hiding;

type Body = fn(&dyn Scope, Tensor) -> Result<Vec<Tensor>>;

/// Runs `body` eagerly and compiled, on a CPU and on a device that hides its memory. Compares the bits of the results.
fn same_bits<T: Element>(elements: &[T], dims: &[u32], body: Body) -> Result<()> {
    let run = |device: &Device| -> Result<[Bits; 2]> {
        let (scope, x) = (Eager::new(device), Tensor::new(device, elements, dims)?);
        let eager = body(&scope, x.clone())?;
        let compiled = Function::new(body).call(&scope, x)?;
        Ok([eager, compiled].map(|results| results.iter().map(bytes).collect()))
    };
    let hiding = Hiding::new();
    assert_eq!(run(&hiding.device)?, run(&ops::portable_cpu())?);
    assert_eq!(hiding.live(), 0);
    Ok(())
}

/// Returns the number of steps of the Collatz sequence from `n` to 1, and the largest number in it.
pub fn collatz(scope: &dyn Scope, n: Tensor) -> Result<Vec<Tensor>> {
    let state = (n.clone(), n.like(0.0)?, n.clone());
    let (_, steps, largest) = while_loop(
        scope,
        WhileOptions::default(),
        state,
        |(n, ..)| n.greater(&n.like(1.0)?),
        |(n, steps, largest)| {
            let odd = n.floormod(&n.like(2.0)?)?.greater(&n.like(0.0)?)?;
            let next = cond(scope, &odd, || n.mul_scalar(3.0)?.add_scalar(1.0), || n.floordiv(&n.like(2.0)?))?;
            Ok((next.clone(), steps.add_scalar(1.0)?, largest.maximum(&next)?))
        },
    )?;
    Ok(vec![steps, largest])
}

/// Returns the outputs of an LSTM, a loss, and the gradients of its variables.
fn lstm(scope: &dyn Scope, x: Tensor) -> Result<Vec<Tensor>> {
    let (layer, tape) = (LSTM::new(4).return_sequences(true), scope.tape());
    let y = layer.apply(&tape, &x)?;
    let loss = y.square()?.sum(&[], false)?;
    let gradients = tape.gradient(&loss, &layer.variables())?;
    let gradients = gradients.into_iter().map(|(_, gradient)| gradient.expect("a gradient"));
    Ok([y, loss].into_iter().chain(gradients).collect())
}

/// Computes `h[t] = tanh(x[t] + h[t - 1] / 2)` for all t in an array, a loss, and the gradient of x.
fn recurrence(scope: &dyn Scope, x: Tensor) -> Result<Vec<Tensor>> {
    let (tape, device, steps) = (scope.tape(), scope.device(), x.dims()[0]);
    let x = tape.watch(&x)?;
    let (start, h, count) = (Tensor::scalar(&device, 0i32), Tensor::full(&device, 0.0f32, &[2])?, Tensor::scalar(&device, steps as i32));
    let (_, _, array) = while_loop(
        &tape,
        WhileOptions { max_iterations: Some(steps) },
        (start, h, TensorArray::new(&tape, DType::F32, steps, false)),
        |(t, ..)| t.less(&count),
        |(t, h, array)| {
            let h = x.gather(&t, 0)?.add(&h.mul_scalar(0.5)?)?.tanh()?;
            Ok((t.add_scalar(1.0)?, h.clone(), array.write(&t, &h)?))
        },
    )?;
    let y = array.stack()?;
    let loss = y.square()?.sum(&[], false)?;
    let gradient = tape.gradient(&loss, &x)?.expect("a gradient");
    Ok(vec![y, loss, gradient])
}

#[test]
fn the_data_decide_branches_and_loops() -> Result<()> {
    for n in [1i32, 6, 27] {
        same_bits(&[n], &[], collatz)?;
    }
    let hiding = Hiding::new();
    let steps = Function::new(collatz).call(&Eager::new(&hiding.device), Tensor::scalar(&hiding.device, 27i32))?;
    assert_eq!([steps[0].item::<i32>()?, steps[1].item::<i32>()?], [111, 9232]);
    Ok(())
}

#[test]
fn recurrent_layers_and_their_gradients_have_the_bits_of_the_cpu() -> Result<()> {
    let elements: Vec<f32> = (0..30).map(|index| (index * 7919 % 101) as f32 / 50.0 - 1.0).collect();
    same_bits(&elements, &[2, 5, 3], lstm)
}

#[test]
fn arrays_and_their_gradients_have_the_bits_of_the_cpu() -> Result<()> {
    same_bits(&[0.1f32, 0.2, 0.3, -0.4, 0.5, 0.6], &[3, 2], recurrence)
}

/// Prints a positive number and returns its square root.
fn root(scope: &dyn Scope, x: Tensor) -> Result<Tensor> {
    x.greater(&x.like(0.0)?)?.assert("x must be positive")?;
    scope.print("x is {}", &[&x])?;
    x.sqrt()
}

#[test]
fn programs_print_and_check_what_is_on_the_device() -> Result<()> {
    let hiding = Hiding::new();
    let scope = Eager::new(&hiding.device);
    let compiled = Function::new(root);
    let number = |x: f32| Tensor::scalar(&hiding.device, x);
    let runs: [&dyn Fn(Tensor) -> Result<Tensor>; 2] = [&|x: Tensor| root(&scope, x), &|x: Tensor| compiled.call(&scope, x)];
    for run in runs {
        assert_eq!(run(number(0.25))?.item::<f32>()?, 0.5);
        let error = run(number(-1.0)).unwrap_err();
        assert!(matches!(error.root(), Error::Assertion { position: 0, .. }), "{error}");
        assert!(error.to_string().contains("x must be positive"), "{error}");
        assert_eq!(run(number(0.25))?.item::<f32>()?, 0.5);
    }
    assert_eq!(hiding.printed(), "x is 0.25\n".repeat(4));
    Ok(())
}
