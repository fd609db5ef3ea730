//! Ported programs with `TensorArray`.

use crate::function::log::{Log, Out, Outcome, differs, given, none};
use crate::function::python::{Arg, eval, scalar, vector};
use gradlet_core::control::{WhileOptions, while_loop};
use gradlet_core::{DType, Differentiate, Function, Result, Scope, Tensor, TensorArray};
use serde_json::json;

pub fn tensor_array_write_read(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, ()| {
        let mut a = TensorArray::new(scope, DType::F32, 3, false);
        for i in 0..3 {
            a = a.write(i, &scalar(i as f32))?;
        }
        Ok((a.read(0)?, a.read(1)?, a.read(2)?))
    });
    log.run(&[], || Some(f.traces()), |_| given(f.call(&scope, ())));
}

pub fn tensor_array_lost_write(log: &mut Log) {
    let scope = log.scope.clone();
    let lost = |scope: &dyn Scope| {
        let a = TensorArray::new(scope, DType::F32, 2, false).with_element_shape(&[])?;
        drop(a.write(0, &scalar(7.0f32))?);
        a.stack()
    };
    let f = Function::new(move |scope: &dyn Scope, ()| lost(scope));
    log.run(
        &[],
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, ())),
            _ => {
                assert_eq!(lost(&scope).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
                differs("an array is a value, eagerly too: what write gives must be used, and the compiler warns where it is not")
            }
        },
    );
}

pub fn tensor_array_ops_eager(log: &mut Log) {
    let scope = log.scope.clone();
    let array = |dtype, size| TensorArray::new(&scope, dtype, size, false);
    let rows = Tensor::new(&scope.device(), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]).unwrap();
    let a = array(DType::F32, 3).clear_after_read(false).unstack(&rows).unwrap();
    let mut b = TensorArray::new(&scope, DType::I32, 0, true);
    let d = array(DType::I32, 2);
    let e = array(DType::F32, 4).scatter(&vector(&[3i32, 1]), &vector(&[10.0f32, 20.0])).unwrap();
    let s = array(DType::I32, 3).split(&vector(&[1i32, 2, 3, 4, 5]), &[2, 0, 3]).unwrap();
    let errors = [
        ("Tried to read from index 3", "cannot read index 3 of an array"),
        ("negative indices (index -1)", "cannot read index -1 of an array"),
        ("write to index 2", "cannot write to index 2"),
        ("partially known TensorShape", "the shape of elements is not known"),
        ("index 3 twice", "element 3 was cleared by an earlier read"),
        ("write dtype int32", "must be f32, not i32"),
        ("Incompatible shape for value", "have the shape [1], not [2]"),
    ];
    log.run(&errors, none, |call| match call.text.as_str() {
        "a.stack()" => given(a.stack()),
        "a.gather([2, 0])" => given(a.gather(&vector(&[2i32, 0]))),
        "a.concat()" => given(a.concat()),
        "a.size()" => given(a.size()),
        "a.element_shape" => given(Ok(json!(a.element_shape().map_or("TensorShape(None)".to_string(), |shape| shape.to_string())))),
        "a.dtype" => given(Ok(json!(if a.dtype() == DType::F32 { "tf.float32" } else { "?" }))),
        "a.dynamic_size" => given(Ok(json!(a.dynamic_size()))),
        "b.write(2, 5).size()" => {
            b = b.write(2, &scalar(5i32)).unwrap();
            given(b.size())
        }
        "b.stack()" => given(b.stack()),
        "d.write(2, 1)" => given(d.write(2, &scalar(1i32)).map(|_| ())),
        "d.read(0)" => given(d.read(0)),
        "e.size()" => given(e.size()),
        "[s.read(0), s.read(1), s.read(2)]" => given((0..3).map(|i| s.read(i)).collect::<Result<Vec<_>>>()),
        "w.write(0, 1.0).write(0, 2.0).read(0)" => {
            let w = array(DType::F32, 1).write(0, &scalar(1.0f32)).and_then(|w| w.write(0, &scalar(2.0f32)));
            given(w.and_then(|w| w.read(0)))
        }
        text if text.starts_with("tf.TensorArray") => given(array(DType::F32, 1).write(0, &scalar(1i32)).map(|_| ())),
        text if text.starts_with("m.write") => {
            let m = array(DType::F32, 2).write(0, &vector(&[1.0f32])).unwrap();
            given(m.write(1, &vector(&[1.0f32, 2.0])).map(|_| ()))
        }
        _ => {
            let index = call.args[0].number() as i32;
            given(if call.name == "a.read" { a.read(index) } else { e.read(index) })
        }
    });
}

pub fn tensor_array_graph_errors(log: &mut Log) {
    let scope = log.scope.clone();
    fn new(scope: &dyn Scope, dtype: DType, size: u32) -> TensorArray {
        TensorArray::new(scope, dtype, size, false)
    }
    fn two(scope: &dyn Scope) -> Result<TensorArray> {
        new(scope, DType::F32, 2).unstack(&vector(&[1.0f32, 2.0]))
    }
    let f = Function::new(|scope: &dyn Scope, i: Arg| match i {
        Arg::Tensor(i) => two(scope)?.read(&i),
        i => two(scope)?.read(i.number() as i32),
    });
    let twice = Function::new(|scope: &dyn Scope, ()| {
        let a = two(scope)?;
        a.read(0)?.add(&a.read(0)?)
    });
    let rewrite =
        Function::new(|scope: &dyn Scope, ()| new(scope, DType::F32, 1).write(0, &scalar(1.0f32))?.write(0, &scalar(2.0f32))?.read(0));
    let unwritten =
        Function::new(|scope: &dyn Scope, ()| new(scope, DType::F32, 2).with_element_shape(&[])?.write(0, &scalar(1.0f32))?.stack());
    let unwritten_no_shape = Function::new(|scope: &dyn Scope, ()| new(scope, DType::F32, 2).stack());
    let grow = Function::new(|scope: &dyn Scope, ()| {
        let a = TensorArray::new(scope, DType::I32, 1, true).write(3, &scalar(9i32))?;
        Ok((a.size()?, a.stack()?))
    });
    let no_grow = Function::new(|scope: &dyn Scope, ()| new(scope, DType::I32, 1).write(1, &scalar(9i32))?.stack());
    let errors = [
        ("access element 2 in a list with 2", "less than 2"),
        ("access element -1 in a list with 2", "at least 0"),
        ("only contains uninitialized tensors", "the shape of elements is not known"),
        ("modify element 1 in a list with 1", "cannot write to index 1"),
    ];
    log.run(
        &errors,
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, call.args[0].clone())),
            "twice" => given(twice.call(&scope, ())),
            "rewrite" => given(rewrite.call(&scope, ())),
            "unwritten" => given(unwritten.call(&scope, ())),
            "unwritten_no_shape" => given(unwritten_no_shape.call(&scope, ())),
            "grow" => given(grow.call(&scope, ())),
            _ => given(no_grow.call(&scope, ())),
        },
    );
}

pub fn tensor_array_in_loop_with_gradient(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, (x, w): (Tensor, Tensor)| {
        let steps = x.dims()[0];
        let state =
            (scalar(0i32), eval("tf.zeros([2])").tensor(), TensorArray::new(scope, DType::F32, steps, false).with_element_shape(&[2])?);
        let options = WhileOptions { max_iterations: Some(steps) };
        let next = |(t, h, a): (Tensor, Tensor, TensorArray)| {
            let h = x.gather(&t, 0)?.add(&h.mul(&w)?)?.tanh()?;
            Ok((t.add_scalar(1.0)?, h.clone(), a.write(&t, &h)?))
        };
        let (_, _, a) = while_loop(scope, options, state, |(t, _, _)| t.less(&scalar(steps as i32)), next)?;
        a.stack()
    });
    let x = eval("tf.constant([[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]])").tensor();
    let w = eval("tf.constant([0.5, -0.3])").tensor();
    log.run(
        &[],
        || Some(f.traces()),
        |call| match call.text.as_str() {
            "grads()" => {
                let tape = scope.tape();
                let (x, w) = (tape.watch(&x).unwrap(), tape.watch(&w).unwrap());
                let y = f.call(&tape, (x.clone(), w.clone())).unwrap();
                let l = y.mul(&y).unwrap().sum(&[], false).unwrap();
                let [dx, dw] = tape.gradient(&l, &[x, w]).unwrap();
                given(Ok(Out::List(vec![l.into(), dx.into(), dw.into()])))
            }
            "f(x, w)" => given(f.call(&scope, (x.clone(), w.clone()))),
            _ => given(f.call(&scope, (x.slice(&[0, 0], &[1, 2]).unwrap(), w.clone()))),
        },
    );
}

pub fn tensor_array_gradient_of_gather_scatter(log: &mut Log) {
    let scope = log.scope.clone();
    fn g(scope: &dyn Scope) -> Result<(Tensor, Option<Tensor>)> {
        let tape = scope.tape();
        let x = tape.watch(&vector(&[1.0f32, 2.0, 3.0]))?;
        let a = TensorArray::new(&tape, DType::F32, 3, false).clear_after_read(false).unstack(&x)?;
        let y = a.gather(&vector(&[0i32, 2, 2]))?.square()?.sum(&[], false)?.add(&a.read(1)?.mul_scalar(10.0)?)?;
        let gradient = tape.gradient(&y, &x)?;
        Ok((y, gradient))
    }
    let f = Function::new(|scope: &dyn Scope, ()| g(scope));
    log.run(
        &[],
        || Some(f.traces()),
        |call| -> Outcome {
            if call.name == "g" {
                return given(g(&scope));
            }
            let (y, gradient) = f.call(&scope, ()).unwrap();
            assert_eq!((y.item::<f32>(), gradient.unwrap().to_vec::<f32>().unwrap()), (Ok(39.0), vec![2.0, 10.0, 12.0]));
            differs("TensorFlow's graphs keep one of the gradients of an element that is gathered twice; here they are added up everywhere")
        },
    );
}

pub fn growing_in_a_loop(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, n: Tensor| {
        let state = (scalar(0i32), TensorArray::new(scope, DType::I32, 0, true).with_capacity(100));
        let next = |(i, a): (Tensor, TensorArray)| Ok((i.add_scalar(1.0)?, a.write(&i, &i.mul(&i)?)?));
        Ok(while_loop(scope, WhileOptions::default(), state, |(i, _)| i.mul(i)?.less(&n), next)?.1)
    });
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            let squares = f.call(&scope, call.tensor(0)).and_then(|a| a.stack());
            // The plan has a fixed capacity, but the returned array has only the elements that were written.
            given(squares)
        },
    );
}
