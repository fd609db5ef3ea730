//! Traced `TensorArray`, compared with the logs of TensorFlow's programs.

use crate::control::{eager, error, f32s, floats, i32s, ints};
use gradlet_core::control::{WhileOptions, cond, while_loop};
use gradlet_core::function::Structure;
use gradlet_core::{DType, Differentiate, Function, Result, Scope, Tensor, TensorArray, Variable};

/// Traces and compiles `body`, and calls it with `argument`.
fn run<A: Structure, R: Structure>(argument: A, body: impl Fn(&dyn Scope, A) -> Result<R> + Send + Sync + 'static) -> Result<R> {
    Function::new(body).call(&eager(), argument)
}

fn array(scope: &dyn Scope, dtype: DType, size: u32) -> TensorArray {
    TensorArray::new(scope, dtype, size, false)
}

#[test]
fn writes_and_reads_at_known_places() -> Result<()> {
    let [a, b, c] = run((), |scope, ()| {
        let mut a = array(scope, DType::F32, 3);
        for i in 0..3 {
            a = a.write(i, &floats(&[i as f32], &[]))?;
        }
        Ok([a.read(0)?, a.read(1)?, a.read(2)?])
    })?;
    assert_eq!([f32s(&a), f32s(&b), f32s(&c)], [vec![0.0], vec![1.0], vec![2.0]]);
    let rewritten =
        run((), |scope, ()| array(scope, DType::F32, 1).write(0, &floats(&[1.0], &[]))?.write(0, &floats(&[2.0], &[]))?.read(0))?;
    assert_eq!(f32s(&rewritten), [2.0]);
    let unwritten = run((), |scope, ()| array(scope, DType::F32, 2).with_element_shape(&[])?.write(0, &floats(&[1.0], &[]))?.stack())?;
    assert_eq!(f32s(&unwritten), [1.0, 0.0]);
    // In a trace, a read does not clear the element.
    let twice = run(floats(&[1.0, 2.0], &[2]), |scope, x| {
        let a = array(scope, DType::F32, 2).unstack(&x)?;
        a.read(0)?.add(&a.read(0)?)
    })?;
    assert_eq!(f32s(&twice), [2.0]);
    let (size, grown) = run((), |scope, ()| {
        let a = TensorArray::new(scope, DType::I32, 1, true).write(3, &ints(&[9], &[]))?;
        Ok((a.size()?, a.stack()?))
    })?;
    assert_eq!((i32s(&size), i32s(&grown)), (vec![4], vec![0, 0, 0, 9]));
    let fixed = run((), |scope, ()| array(scope, DType::I32, 1).write(1, &ints(&[9], &[]))?.stack());
    assert_eq!(error(fixed), "cannot write to index 1: the array has 1 elements, and its size is not dynamic");
    let unknown = run((), |scope, ()| array(scope, DType::F32, 2).stack());
    assert_eq!(error(unknown), "the element is unwritten, and the shape of elements is not known: use with_element_shape");
    Ok(())
}

#[test]
fn computed_indices_are_checked_when_they_run() -> Result<()> {
    let f = Function::new(|scope: &dyn Scope, i: Tensor| array(scope, DType::F32, 2).unstack(&floats(&[1.0, 2.0], &[2]))?.read(&i));
    assert_eq!(f32s(&f.call(&eager(), ints(&[1], &[]))?), [2.0]);
    for wrong in [2, -1] {
        let text = error(f.call(&eager(), ints(&[wrong], &[])));
        assert!(text.contains(&format!("{wrong}")) && text.contains("must be at least 0 and less than"), "{text}");
    }
    let write = |dynamic: bool, capacity: Option<u32>, index: i32| {
        run(ints(&[index], &[]), move |scope, i: Tensor| {
            let a = TensorArray::new(scope, DType::I32, 1, dynamic);
            capacity.map_or(a.clone(), |capacity| a.with_capacity(capacity)).write(&i, &ints(&[7], &[]))
        })
    };
    assert_eq!(i32s(&write(false, None, 0)?.stack()?), [7]);
    assert!(error(write(false, None, 1)).contains("must be at least 0 and less than"));
    assert_eq!(error(write(true, None, 1)), "in a trace, an array that grows needs a stated capacity: use with_capacity");
    assert_eq!(i32s(&write(true, Some(5), 2)?.stack()?), [0, 0, 7]);
    // The returned array can grow further, outside of the function.
    assert_eq!(i32s(&write(true, Some(5), 2)?.write(6, &ints(&[8], &[]))?.stack()?), [0, 0, 7, 0, 0, 0, 8]);
    assert!(error(write(true, Some(5), 5)).contains("must be at least 0 and less than"));
    Ok(())
}

/// Computes `h[t] = tanh(x[t] + h[t - 1] w)` for all t.
fn recurrence(scope: &dyn Scope, x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let steps = x.dims()[0];
    let state = (ints(&[0], &[]), floats(&[0.0; 2], &[2]), array(scope, DType::F32, steps));
    let options = WhileOptions { max_iterations: Some(steps) };
    let count = ints(&[steps as i32], &[]);
    let (_, _, a) = while_loop(
        scope,
        options,
        state,
        |(t, ..)| t.less(&count),
        |(t, h, a)| {
            let h = x.gather(&t, 0)?.add(&h.mul(w)?)?.tanh()?;
            Ok((t.add_scalar(1.0)?, h.clone(), a.write(&t, &h)?))
        },
    )?;
    a.stack()
}

#[test]
fn a_loop_with_an_array_and_its_gradient() -> Result<()> {
    let x = floats(&[0.1, 0.2, 0.3, -0.4, 0.5, 0.6], &[3, 2]);
    let w = floats(&[0.5, -0.3], &[2]);
    let gradients = |scope: &dyn Scope, (x, w): (Tensor, Tensor)| {
        let tape = scope.tape();
        let (x, w) = (tape.watch(&x)?, tape.watch(&w)?);
        let y = recurrence(&tape, &x, &w)?;
        let loss = y.square()?.sum(&[], false)?;
        let found = tape.gradient(&loss, [x, w].as_slice())?.into_iter().map(Option::unwrap);
        Ok([y, loss].into_iter().chain(found).collect::<Vec<_>>())
    };
    let near = |got: &Tensor, want: &[f64]| {
        let got = f32s(got);
        assert!(
            got.len() == want.len() && got.iter().zip(want).all(|(got, want)| (f64::from(*got) - want).abs() < 1e-6),
            "{got:?} {want:?}"
        );
    };
    let eagerly = gradients(&eager(), (x.clone(), w.clone()))?;
    for found in [eagerly, run((x.clone(), w.clone()), gradients)?] {
        let [y, loss, dx, dw] = found.try_into().unwrap();
        near(
            &y,
            &[0.0996680036187172, 0.1973753273487091, 0.3362283408641815, -0.42944222688674927, 0.5837380290031433, 0.6223506927490234],
        );
        near(&loss, &[1.0744314193725586]);
        near(
            &dx,
            &[0.6615782380104065, 0.6351282000541687, 0.9377602338790894, -0.8870774507522583, 0.7696585059165955, 0.7626031637191772],
        );
        near(&dw, &[0.3522456884384155, -0.5025811791419983]);
    }
    let first = run((x.index(..1)?, w), |scope, (x, w): (Tensor, Tensor)| recurrence(scope, &x, &w))?;
    near(&first, &[0.0996680036187172, 0.1973753273487091]);
    Ok(())
}

#[test]
fn gradients_of_gather_and_scatter_are_summed() -> Result<()> {
    let [y, dx] = run(floats(&[1.0, 2.0, 3.0], &[3]), |scope, x| {
        let tape = scope.tape();
        let x = tape.watch(&x)?;
        let a = array(&tape, DType::F32, 3).unstack(&x)?;
        let y = a.gather(&ints(&[0, 2, 2], &[3]))?.square()?.sum(&[], false)?.add(&a.read(1)?.mul_scalar(10.0)?)?;
        Ok([y.clone(), tape.gradient(&y, &x)?.unwrap()])
    })?;
    assert_eq!((f32s(&y), f32s(&dx)), (vec![39.0], vec![2.0, 10.0, 12.0]));
    let [y, dx] = run((floats(&[1.0, 2.0], &[2]), ints(&[2, 0], &[2])), |scope, (x, indices): (Tensor, Tensor)| {
        let tape = scope.tape();
        let x = tape.watch(&x)?;
        let y = array(&tape, DType::F32, 3).scatter(&indices, &x)?.stack()?;
        let loss = y.mul(&floats(&[1.0, 10.0, 100.0], &[3]))?;
        Ok([y, tape.gradient(&loss, &x)?.unwrap()])
    })?;
    assert_eq!((f32s(&y), f32s(&dx)), (vec![2.0, 0.0, 1.0], vec![100.0, 1.0]));
    Ok(())
}

#[test]
fn an_array_grows_in_a_loop() -> Result<()> {
    let f = Function::new(|scope: &dyn Scope, n: Tensor| {
        let state = (n.like(0.0)?, TensorArray::new(scope, DType::I32, 0, true).with_capacity(8));
        let (_, a) = while_loop(
            scope,
            WhileOptions::default(),
            state,
            |(i, _)| i.mul(i)?.less(&n),
            |(i, a)| Ok((i.add_scalar(1.0)?, a.write(&i, &i.mul(&i)?)?)),
        )?;
        Ok((a.stack()?, a.size()?, a))
    });
    let (padded, size, a) = f.call(&eager(), ints(&[30], &[]))?;
    assert_eq!((i32s(&padded), i32s(&size), i32s(&a.stack()?)), (vec![0, 1, 4, 9, 16, 25, 0, 0], vec![6], vec![0, 1, 4, 9, 16, 25]));
    assert_eq!(format!("{a:?}"), "TensorArray(i32, 6 elements)");
    assert_eq!(i32s(&f.call(&eager(), ints(&[0], &[]))?.2.stack()?), [0i32; 0]);
    assert!(error(f.call(&eager(), ints(&[100], &[]))).contains("must be at least 0 and less than"));
    assert_eq!(f.traces(), 1);
    Ok(())
}

#[test]
fn branches_give_arrays() -> Result<()> {
    let f = Function::new(|scope: &dyn Scope, x: Tensor| {
        let a = array(scope, DType::F32, 2);
        let negative = x.less(&x.like(0.0)?)?;
        let a = cond(scope, &negative, || a.write(0, &x), || a.write(1, &x)?.write(0, &x.mul(&x)?))?;
        // Only one branch determines the element shape of this array.
        let b = array(scope, DType::F32, 1);
        let b = cond(scope, &negative, || b.write(0, &x), || Ok(b.clone()))?;
        Ok((a.stack()?, b.stack()?))
    });
    let both = |x: f32| f.call(&eager(), floats(&[x], &[])).map(|(a, b)| (f32s(&a), f32s(&b)));
    assert_eq!(both(-3.0)?, (vec![-3.0, 0.0], vec![-3.0]));
    assert_eq!(both(2.0)?, (vec![4.0, 2.0], vec![0.0]));
    Ok(())
}

#[test]
fn arrays_are_arguments_and_results() -> Result<()> {
    let double = Function::new(|_: &dyn Scope, a: TensorArray| a.write(1, &a.read(0)?.add(&a.read(0)?)?));
    let a = TensorArray::new(&eager(), DType::I32, 2, false).write(0, &ints(&[4], &[]))?;
    let a = double.call(&eager(), a)?;
    assert_eq!(i32s(&a.stack()?), [4, 8]);
    assert_eq!(i32s(&double.call(&eager(), a)?.stack()?), [4, 8]);
    assert_eq!(double.traces(), 2);
    Ok(())
}

#[test]
fn no_gradient_flows_through_an_assignment() -> Result<()> {
    let memory = Variable::new(&eager(), "memory", &floats(&[1.0], &[]))?;
    // TensorFlow's graph also returns 12.
    let gradient = move |scope: &dyn Scope, x: Tensor| {
        let tape = scope.tape();
        let x = tape.watch(&x)?;
        let state = (ints(&[0], &[]), floats(&[0.0], &[]));
        let options = WhileOptions { max_iterations: Some(2) };
        let (_, y) = while_loop(
            &tape,
            options,
            state,
            |(i, _)| i.less(&i.like(2.0)?),
            |(i, y)| {
                tape.assign(&memory, &x.mul_scalar(2.0)?)?;
                Ok((i.add_scalar(1.0)?, y.add(&tape.read(&memory)?.mul(&x)?)?))
            },
        )?;
        Ok(tape.gradient(&y, &x)?.unwrap())
    };
    assert_eq!(f32s(&gradient(&eager(), floats(&[3.0], &[]))?), [12.0]);
    assert_eq!(f32s(&run(floats(&[3.0], &[]), gradient)?), [12.0]);
    Ok(())
}
