//! Errors of `#[autograph]` that occur only when a program is traced or runs.

use gradlet_core::autograph::{autograph, range};
use gradlet_core::control::cond;
use gradlet_core::{Differentiate, Eager, Error, Function, Result, Scope, Tensor, ops};

fn scope() -> Eager {
    Eager::new(&ops::portable_cpu())
}

fn traced(f: fn(Tensor) -> Result<Tensor>, x: impl gradlet_core::tensor::Element) -> Result<Tensor> {
    let scope = scope();
    let x = Tensor::scalar(&scope.device(), x);
    Function::new(move |_: &dyn Scope, x: Tensor| f(x)).call(&scope, x)
}

fn message(f: fn(Tensor) -> Result<Tensor>, x: impl gradlet_core::tensor::Element) -> String {
    traced(f, x).unwrap_err().to_string()
}

#[autograph]
fn another_type(x: Tensor) -> Result<Tensor> {
    let y;
    if x > 0 {
        y = x.like(1.0)?;
    } else {
        y = x.cast(gradlet_core::DType::F32)?;
    }
    Ok(y)
}

#[autograph]
fn another_type_in_one_branch(mut x: Tensor) -> Result<Tensor> {
    if x > 0 {
        x = x * x;
    } else {
        x = 0;
    }
    Ok(x)
}

#[autograph]
fn another_shape(x: Tensor) -> Result<Tensor> {
    let mut y = x.broadcast_to(&[1])?;
    if x > 0 {
        y = x.broadcast_to(&[2])?;
    }
    Ok(y)
}

#[autograph]
fn none_in_one_branch(x: Tensor) -> Result<Tensor> {
    let mut y = None;
    if x > 0 {
        y = Some(x * 2);
    }
    y.ok_or(Error::message("none"))
}

#[autograph]
fn a_count(x: Tensor) -> Result<Tensor> {
    let mut count = 0;
    if x > 0 {
        count += 1;
    }
    Ok(x + count)
}

#[autograph]
fn growing(n: Tensor) -> Result<Tensor> {
    let mut x = n.broadcast_to(&[1])?;
    for _ in range(&n)? {
        x = Tensor::concat(&[x.clone(), x], 0)?;
    }
    Ok(x)
}

#[autograph]
fn a_float_beside_integers(n: Tensor) -> Result<Tensor> {
    let mut x = n * 0;
    for _ in range(&n)? {
        x = x + 0.5;
    }
    Ok(x)
}

#[test]
fn errors_name_the_variable() {
    let branches = |text: &str| format!("{text} in the else branch");
    assert_eq!(message(another_type, 1), branches("'its value' is i32[] in the main branch, but f32[]"));
    assert_eq!(message(another_type_in_one_branch, 2.0f32), branches("'x' is f32[] in the main branch, but i32[]"));
    assert_eq!(message(another_shape, 1), branches("'y' is i32[2] in the main branch, but i32[1]"));
    let differ = "in the main branch and in the else branch: if the condition is a tensor, only tensors can differ";
    assert_eq!(message(none_in_one_branch, 1), format!("'y' has different host values {differ}"));
    assert_eq!(message(a_count, 1), format!("'count' has different host values {differ}"));
    assert_eq!(message(growing, 2), "'x' is i32[1] before the loop, but i32[2] after one iteration");
    assert_eq!(message(a_float_beside_integers, 2), "a float cannot be combined with a tensor i32[]: cast one of them");
    // Eagerly, only Rust's own rules apply, because the tensors have values.
    let three = Tensor::scalar(&ops::portable_cpu(), 3);
    assert_eq!(a_count(three.clone()).unwrap().item::<i32>().unwrap(), 4);
    assert_eq!(growing(three).unwrap().dims(), [8]);
}

#[autograph]
fn positive(x: Tensor) -> Result<Tensor> {
    assert!(x > 0, "{} is too small", "it");
    Ok(x)
}

#[test]
fn assertions_say_their_message_where_they_run() {
    let too_small = |error: Error| {
        assert!(matches!(error.root(), Error::Assertion { position: 0, .. }));
        assert!(error.to_string().starts_with("it is too small: the assertion fails at position 0"), "{error}");
    };
    too_small(positive(Tensor::scalar(&ops::portable_cpu(), -1)).unwrap_err());
    too_small(traced(positive, -1).unwrap_err());
    assert_eq!(traced(positive, 5).unwrap().item::<i32>().unwrap(), 5);
}

#[autograph]
fn a_vector_decides(x: Tensor) -> Result<Tensor> {
    if x > 0.0 {
        return Ok(x);
    }
    Ok(-x)
}

#[test]
fn conditions_are_scalars_of_bool() {
    let x = Tensor::new(&ops::portable_cpu(), &[1.0f32, 2.0], &[2]).unwrap();
    assert_eq!(a_vector_decides(x).unwrap_err().to_string(), "a condition must be bool[], not bool[2]");
}

#[autograph]
fn power(x: &Tensor, n: &Tensor) -> Result<Tensor> {
    let mut y = x.like(1.0)?;
    #[max_iterations(10)]
    for _ in range(n)? {
        y *= x;
    }
    Ok(y)
}

#[autograph]
fn leaky(x: &Tensor) -> Result<Tensor> {
    if x > 0.0 {
        return Ok(x * x);
    }
    Ok(x * 0.1)
}

#[test]
fn gradients_go_through_branches_and_loops() {
    let scope = scope();
    let cube = |scope: &dyn Scope, x: Tensor| {
        let tape = scope.tape();
        let x = tape.watch(&x)?;
        let n = x.cast(gradlet_core::DType::I32)?;
        let y = power(&x, &n)?;
        let slope = tape.gradient(&y, &x)?.ok_or(Error::Traced)?;
        let tape = scope.tape();
        let x = tape.watch(&x)?;
        let bend = tape.gradient(&leaky(&x)?, &x)?.ok_or(Error::Traced)?;
        Ok((y, slope, bend))
    };
    let x = Tensor::scalar(&scope.device(), 3.0f32);
    let check = |(y, slope, bend): (Tensor, Tensor, Tensor)| {
        assert_eq!(y.item::<f32>().unwrap(), 27.0);
        assert_eq!(slope.item::<f32>().unwrap(), 27.0);
        assert_eq!(bend.item::<f32>().unwrap(), 6.0);
    };
    check(cube(&scope, x.clone()).unwrap());
    check(Function::new(cube).call(&scope, x).unwrap());
}

struct Cell {
    state: Tensor,
    steps: usize,
}

impl Cell {
    /// A method. Fields are carried through branches like local variables.
    #[autograph]
    fn step(&mut self, x: &Tensor) -> Result<Tensor> {
        self.steps += 1;
        if x > 0.0 {
            self.state = self.state + x;
        } else {
            self.state = self.state * 0.5;
        }
        Ok(self.state.clone())
    }
}

#[test]
fn methods_carry_fields() {
    let scope = scope();
    let run = |_: &dyn Scope, x: Tensor| {
        let mut cell = Cell { state: x.like(0.0)?, steps: 0 };
        cell.step(&x)?;
        cell.step(&x.neg()?)?;
        assert_eq!(cell.steps, 2);
        Ok(cell.state)
    };
    let x = Tensor::scalar(&scope.device(), 3.0f32);
    assert_eq!(run(&scope, x.clone()).unwrap().item::<f32>().unwrap(), 1.5);
    assert_eq!(Function::new(run).call(&scope, x).unwrap().item::<f32>().unwrap(), 1.5);
}

#[autograph]
fn with_a_closure(x: &Tensor) -> Result<Tensor> {
    let largest = #[autograph]
    |a: &Tensor, b: &Tensor| -> Result<Tensor> { if a > b { Ok(a.clone()) } else { Ok(b.clone()) } };
    let double = |x: f64| x * 2.0;
    largest(&(x * double(1.5)), &(x + 1))
}

#[test]
fn closures_with_the_attribute_are_rewritten() {
    let two = || Tensor::scalar(&ops::portable_cpu(), 2.0f32);
    assert_eq!(with_a_closure(&two()).unwrap().item::<f32>().unwrap(), 6.0);
    let zero = two().like(0.0).unwrap();
    assert_eq!(with_a_closure(&zero).unwrap().item::<f32>().unwrap(), 1.0);
    // The same program with a call of `cond`.
    let by_hand = cond(&scope(), &two().greater(&zero).unwrap(), || two().mul_scalar(3.0), || two().add_scalar(1.0));
    assert_eq!(by_hand.unwrap().item::<f32>().unwrap(), 6.0);
}
