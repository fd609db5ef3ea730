//! Ported programs with gradient tapes.

use crate::function::log::{Log, Out, differs, given, none};
use crate::function::python::{eval, scalar, vector};
use gradlet_core::autodiff::Tape;
use gradlet_core::autodiff::TapeOptions;
use gradlet_core::custom_op::Backward;
use gradlet_core::{DType, Differentiate, Function, Result, Scope, Tensor, Variable};
use std::collections::BTreeMap;

fn variable(log: &Log, value: f32) -> Variable {
    Variable::new(&log.scope, "v", &scalar(value)).unwrap()
}

pub fn tape_basic_and_errors(log: &mut Log) {
    let (x, u) = (variable(log, 3.0), variable(log, 1.0));
    let k = scalar(3.0f32);
    let scope = log.scope.clone();
    let square = |tape: &Tape| tape.read(&x)?.mul(&tape.read(&x)?);
    let t1 = scope.tape();
    let y1 = square(&t1).unwrap();
    let t2 = scope.tape();
    let t3 = scope.tape();
    let k3 = t3.watch(&k).unwrap();
    let y3 = k3.mul(&k3).unwrap();
    let t4 = scope.persistent_tape();
    let y4 = square(&t4).unwrap();
    let z4 = y4.mul(&y4).unwrap();
    let t6 = scope.tape();
    let x6 = t6.read(&x).unwrap();
    let y6 = x6.mul(&x6.stop_gradient().unwrap()).unwrap();
    let t7 = scope.persistent_tape();
    let y7 = t7.read(&x).unwrap().mul_scalar(2.0).unwrap();
    let t8 = scope.tape();
    let x8 = t8.read(&x).unwrap();
    let y8 = Tensor::stack(&[&x8, &x8.mul(&x8).unwrap()], 0).unwrap();
    let integers = "TensorFlow warns and gives None: here the target of a gradient must be of a float type";
    log.run(&[("can only be used to compute one set", "has already computed a gradient")], none, |call| match call.text.as_str() {
        "t1.gradient(y, x)" => given(t1.gradient(&y1, &x)),
        "t2.gradient(y, k)" => given(t2.gradient(&k.mul(&k).unwrap(), &k)),
        "t3.gradient(y, k)" => given(t3.gradient(&y3, &k3)),
        "t4.gradient(z, x)" => given(t4.gradient(&z4, &x)),
        "t4.gradient(y, x)" => given(t4.gradient(&y4, &x)),
        "t4.gradient(z, [x, y])" => given(t4.gradient(&z4, &(x.clone(), y4.clone()))),
        "t4.gradient([y, z], x)" => given(t4.gradient_of(&[(&y4, None), (&z4, None)], &x)),
        text if text.starts_with("t4.gradient({") => {
            let gradients = t4.gradient_of(&[(&y4, None), (&z4, None)], &BTreeMap::from([("q", x.clone())]));
            given(gradients.map(|named| Out::Named(named.into_iter().map(|(name, gradient)| (name, gradient.into())).collect())))
        }
        "t5.gradient(y, x)" => {
            let tape = scope.tape();
            let y = tape.read(&x).unwrap().cast(DType::I32).unwrap().mul_scalar(2.0).unwrap();
            assert!(tape.gradient(&y, &x).err().unwrap().to_string().contains("must be a float tensor"));
            differs(integers)
        }
        "t6.gradient(y, x)" => given(t6.gradient(&y6, &x)),
        "t7.gradient(y, u)" => given(t7.gradient(&y7, &u)),
        "t7.gradient(y, 3.0)" | "t8.watch(5)" => differs("numbers are no sources, and cannot be watched: the compiler says so"),
        "t7.watched_variables()" => given(t7.watched_variables().iter().map(|v| scope.read(v)).collect::<Result<Vec<_>>>()),
        "t8.gradient(y, x)" => given(t8.gradient(&y8, &x)),
        "t9.gradient(y, i)" => differs(integers),
        text if text.contains("unconnected_gradients") => given(t7.gradient_or_zeros(&y7, &u)),
        text if text.contains("output_gradients") => given(t7.gradient_of(&[(&y7, Some(&call.named["output_gradients"].tensor()))], &x)),
        _ => differs("a tape records from the moment that it is made: there is none that was never entered"),
    });
}

pub fn tape_stop_recording(log: &mut Log) {
    let x = variable(log, 2.0);
    let t = log.scope.persistent_tape();
    let read = || t.read(&x);
    let y = read().unwrap().mul(&read().unwrap()).unwrap();
    let z = t.stop_recording(|| read()?.mul(&read()?)?.mul(&read()?)).unwrap();
    let w = y.mul(&read().unwrap()).unwrap();
    t.stop();
    log.run(&[("Tape is not recording", "the tape is not recording")], none, |call| match call.text.as_str() {
        "t.gradient(y, x)" => given(t.gradient(&y, &x)),
        "t.gradient(z, x)" => given(t.gradient(&z, &x)),
        "t.gradient(w, x)" => given(t.gradient(&w, &x)),
        "t.reset()" => given(t.reset()),
        _ => given(t.stop_recording(|| Ok(()))),
    });
}

pub fn tape_higher_order(log: &mut Log) {
    let x = variable(log, 3.0);
    let t2 = log.scope.tape();
    let t1 = t2.tape();
    let y = t1.read(&x).unwrap().pow(&scalar(3.0f32)).unwrap();
    let g = t1.gradient(&y, &x).unwrap().unwrap();
    let t = log.scope.persistent_tape();
    let y = t.read(&x).unwrap().square().unwrap();
    let g1 = t.gradient(&y, &x).unwrap().unwrap();
    let g2 = t.stop_recording(|| t.gradient(&y, &x)).unwrap().unwrap();
    log.run(&[], none, |call| match call.text.as_str() {
        "g" => given(Ok(g.clone())),
        "t2.gradient(g, x)" => given(t2.gradient(&g, &x)),
        "t.gradient(g1, x)" => given(t.gradient(&g1, &x)),
        _ => given(t.gradient(&g2, &x)),
    });
}

pub fn tape_variable_options(log: &mut Log) {
    let scope = log.scope.clone();
    let v = variable(log, 2.0);
    let n = Variable::untrained("n");
    n.create(&scope, &scalar(3.0f32)).unwrap();
    let e = Variable::new(&scope, "e", &eval("tf.ones([4, 2])").tensor()).unwrap();
    let both = |tape: &Tape| {
        let y = tape.read(&v)?.mul(&tape.read(&n)?)?;
        tape.gradient(&y, &(v.clone(), n.clone()))
    };
    let mut first = true;
    log.run(&[], none, |call| match call.text.as_str() {
        "t.gradient(y, [v, n])" if std::mem::take(&mut first) => given(both(&scope.tape())),
        "t.gradient(y, [v, n])" => {
            let options = TapeOptions { watch_accessed_variables: false, ..TapeOptions::default() };
            let tape = Tape::with_options(&scope, options);
            tape.watch_variable(&n);
            given(both(&tape))
        }
        "t.gradient(y, e)" => {
            let tape = scope.tape();
            let y = tape.read(&e).unwrap().gather(&vector(&[1i32, 1, 3]), 0).unwrap().sum(&[], false).unwrap();
            let dense = tape.gradient(&y, &e).unwrap().unwrap();
            assert_eq!(dense.to_vec::<f32>().unwrap(), [0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 1.0, 1.0]);
            differs("gradients are dense: there are no IndexedSlices; their sum is the same")
        }
        _ => {
            let tape = scope.tape();
            tape.assign(&v, &scalar(10.0f32)).unwrap();
            let y = tape.read(&v).unwrap().mul(&tape.read(&v).unwrap()).unwrap();
            tape.assign(&v, &scalar(1.0f32)).unwrap();
            given(tape.gradient(&y, &v))
        }
    });
}

pub fn tape_jacobian_and_function(log: &mut Log) {
    let scope = log.scope.clone();
    let x = vector(&[1.0f32, 2.0]);
    let t = scope.persistent_tape();
    let w = t.watch(&x).unwrap();
    let at = |index: i32| w.gather(&scalar(index), 0);
    let y =
        Tensor::stack(&[at(0).unwrap().mul(&at(1).unwrap()).unwrap(), at(0).unwrap().square().unwrap(), at(1).unwrap().sin().unwrap()], 0);
    let y = y.unwrap();
    let f = Function::new(|scope: &dyn Scope, v: Tensor| {
        let tape = scope.tape();
        let v = tape.watch(&v)?;
        let z = v.pow(&v.like(3.0)?)?.sum(&[], false)?;
        tape.gradient(&z, &v)
    });
    log.run(
        &[],
        || Some(f.traces()),
        |call| match call.text.as_str() {
            "t.jacobian(y, x)" => given(t.jacobian(&y, &w)),
            "t.gradient(y, x)" => given(t.gradient(&y, &w)),
            "f(x)" => given(f.call(&scope, x.clone())),
            "f(x * 2)" => given(f.call(&scope, x.mul_scalar(2.0).unwrap())),
            _ => {
                let tape = scope.tape();
                let b = tape.watch(&x.broadcast_to(&[2, 2]).unwrap()).unwrap();
                given(tape.batch_jacobian(&b.mul(&x).unwrap(), &b))
            }
        },
    );
}

pub fn custom_gradient(log: &mut Log) {
    let tape = log.scope.tape();
    let x = tape.watch(&vector(&[-1.0f32, 2.0])).unwrap();
    let rule = |of: &Backward<'_>| Ok([Some(of.dy()?.mul_scalar(0.1)?)].into_iter().collect());
    let y = gradlet_core::autodiff::custom_gradient(&[&x], |x| Ok(vec![x[0].maximum(&x[0].like(0.0)?)?]), rule).unwrap().remove(0);
    log.run(&[], none, |call| match call.text.as_str() {
        "y" => given(Ok(y.clone())),
        _ => given(tape.gradient(&y, &x)),
    });
}
