//! Tests of scopes: training mode, random numbers, custom gradients, 16-bit floats and tapes.

use gradlet_core::autodiff::custom_gradient;
use gradlet_core::custom_op::Backward;
use gradlet_core::device::Device;
use gradlet_core::{DType, Differentiate, Eager, Error, Function, Result, Scope, Tensor, Variable, ops};

fn device() -> Device {
    ops::portable_cpu()
}

fn scalar(value: f32) -> Tensor {
    Tensor::scalar(&device(), value)
}

fn item(tensor: Option<Tensor>) -> f32 {
    tensor.expect("a gradient").item().unwrap()
}

#[test]
fn training_is_seen_in_tapes_and_in_traces_of_their_own() {
    let scope = Eager::new(&device());
    let trains = Function::new(|scope: &dyn Scope, x: Tensor| x.add(&Tensor::scalar(&scope.device(), scope.training() as u8 as f32)));
    for (scope, want) in [(scope.with_training(true), 1.0), (scope.handle(), 0.0), (scope.with_training(true), 1.0)] {
        assert_eq!(trains.call(&scope, scalar(0.0)).unwrap().item::<f32>(), Ok(want));
        let tape = scope.tape();
        assert_eq!(trains.call(&tape, tape.watch(&scalar(0.0)).unwrap()).unwrap().item::<f32>(), Ok(want));
        assert!(!tape.with_training(false).training());
    }
    assert_eq!(trains.traces(), 2);
}

/// The function adds its argument `v` to the captured variable `a`. The argument may be any variable, even `a` itself.
#[test]
fn variables_as_arguments_are_traced_once_and_never_mistaken() {
    let scope = Eager::new(&device());
    let [a, b, c] = [("a", 1.0), ("b", 10.0), ("c", 100.0)].map(|(name, value)| Variable::new(&scope, name, &scalar(value)).unwrap());
    let named = a.clone();
    let f = Function::new(move |scope: &dyn Scope, v: Variable| {
        scope.assign_add(&v, &scalar(0.5))?;
        scope.read(&v)?.add(&scope.read(&named)?)
    });
    let sum = |v: &Variable| f.call(&scope, v.clone()).unwrap().item::<f32>().unwrap();
    assert_eq!([sum(&b), sum(&a), sum(&c), sum(&b)], [11.5, 3.0, 102.0, 12.5]);
    assert_eq!(f.traces(), 1);
}

#[test]
fn random_numbers_differ_from_run_to_run_and_depend_on_the_seed_only() {
    let draw = |seed| {
        let scope = Eager::with_seed(&device(), seed);
        let function = Function::new(|scope: &dyn Scope, x: Tensor| Tensor::random_uniform(scope, &[5])?.add(&x));
        let mut numbers: Vec<Vec<f32>> = vec![Tensor::random_uniform(&scope, &[5]).unwrap().to_vec().unwrap()];
        (0..2).for_each(|_| numbers.push(function.call(&scope, scalar(0.0)).unwrap().to_vec().unwrap()));
        numbers
    };
    let numbers = draw(1);
    assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2]);
    assert_eq!(numbers, draw(1));
    assert_ne!(numbers, draw(2));
}

/// Returns `x` with a custom gradient, `3 · upstream · x`. The derivative of this gradient is `3 · upstream`.
fn tripled(x: &Tensor) -> Result<Tensor> {
    let rule = |of: &Backward<'_>| {
        let three = Tensor::scalar(&of.inputs[0].device()?, 3.0f32);
        Ok([Some(of.dy()?.mul(&of.inputs[0])?.mul(&three)?)].into_iter().collect())
    };
    Ok(custom_gradient(&[x], |x| Ok(vec![x[0].identity()?]), rule)?.remove(0))
}

#[test]
fn custom_gradients_take_the_place_of_the_ops_own_in_every_order() {
    let scope = Eager::new(&device());
    assert_eq!(tripled(&scalar(2.0)).unwrap().item::<f32>(), Ok(2.0));
    let outer = scope.tape();
    let x = outer.watch(&scalar(2.0)).unwrap();
    let inner = outer.tape();
    let y = inner.watch(&x).unwrap();
    let first = inner.gradient(&tripled(&y).unwrap(), &y).unwrap().unwrap();
    assert_eq!(first.item::<f32>(), Ok(6.0));
    assert_eq!(item(outer.gradient(&first, &x).unwrap()), 3.0);
    let traced = Function::new(|scope: &dyn Scope, x: Tensor| {
        let tape = scope.tape();
        let x = tape.watch(&x)?;
        tape.gradient(&tripled(&x)?, &x)?.ok_or(Error::message("none"))
    });
    assert_eq!(traced.call(&scope, scalar(2.0)).unwrap().item::<f32>(), Ok(6.0));
}

#[test]
fn sixteen_bit_floats_are_computed_in_f32_and_rounded() {
    for dtype in [DType::F16, DType::Bf16] {
        let narrow = |values: &[f32]| Tensor::new(&device(), values, &[values.len() as u32]).unwrap().cast(dtype).unwrap();
        let (a, b) = (narrow(&[1.1, -2.3, 1000.0]), narrow(&[0.7, 0.3, 3.0]));
        let wide = |x: &Tensor| x.cast(DType::F32).unwrap();
        let rounded = |x: &Tensor| wide(&x.cast(dtype).unwrap()).to_vec::<f32>().unwrap();
        let product = a.mul(&b).unwrap();
        assert_eq!(product.dtype(), dtype);
        assert_eq!(wide(&product).to_vec::<f32>().unwrap(), rounded(&wide(&a).mul(&wide(&b)).unwrap()));
        assert_eq!(a.equal(&a).unwrap().dtype(), DType::Bool);
        let scope = Eager::new(&device());
        let square = Function::new(|scope: &dyn Scope, x: Tensor| {
            let tape = scope.tape();
            let x = tape.watch(&x)?;
            tape.gradient(&x.mul(&x)?.sum(&[], false)?, &x)?.ok_or(Error::message("none"))
        });
        let gradient = square.call(&scope, a.clone()).unwrap();
        assert_eq!(gradient.dtype(), dtype);
        assert_eq!(wide(&gradient).to_vec::<f32>().unwrap(), rounded(&wide(&a).add(&wide(&a)).unwrap()));
    }
}

#[test]
fn a_tape_gives_none_for_what_is_not_connected_and_is_spent_once() {
    let scope = Eager::new(&device());
    let [w, v] = ["w", "v"].map(|name| Variable::new(&scope, name, &scalar(3.0)).unwrap());
    let tape = scope.tape();
    let (x, unused) = (tape.watch(&scalar(2.0)).unwrap(), tape.watch(&scalar(1.0)).unwrap());
    let y = tape.read(&w).unwrap().mul(&x).unwrap();
    let z = x.mul(&x).unwrap();
    let gradients = tape.gradient_of(&[(&y, None), (&z, None)], [x.clone(), unused].as_slice()).unwrap();
    assert_eq!(item(gradients[0].clone()), 7.0);
    assert!(gradients[1].is_none());
    let error = tape.gradient(&y, &w).unwrap_err();
    assert_eq!(error, Error::SpentTape);
    assert!(error.to_string().contains("persistent_tape()"));
    let tape = scope.persistent_tape();
    let y = tape.read(&w).unwrap().mul(&tape.read(&w).unwrap()).unwrap();
    assert_eq!(item(tape.gradient(&y, &w).unwrap()), 6.0);
    assert!(tape.gradient(&y, &v).unwrap().is_none());
    assert_eq!(item(tape.gradient(&y, &w).unwrap()), 6.0);
}

#[test]
fn integers_have_no_gradients() {
    let scope = Eager::new(&device());
    let tape = scope.tape();
    let x = tape.watch(&Tensor::scalar(&device(), 3i32)).unwrap();
    let error = tape.gradient(&x.mul(&x).unwrap(), &x).unwrap_err().to_string();
    assert!(error.contains("float") && error.contains("i32"), "{error}");
}
