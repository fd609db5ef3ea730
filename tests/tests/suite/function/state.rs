//! Ported programs with functions that capture, change and keep state.

use crate::function::log::{Log, differs, given, none};
use crate::function::python::{Arg, scalar, vector};
use gradlet_core::function::Structure;
use gradlet_core::{Function, Print, Scope, Tensor, Variable};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub fn side_effects_happen_while_tracing(log: &mut Log) {
    let scope = log.scope.clone();
    let counter = Arc::new(AtomicUsize::new(0));
    let inside = counter.clone();
    let f = Function::new(move |_: &dyn Scope, x: Tensor| x.add_scalar((inside.fetch_add(1, Ordering::Relaxed) + 1) as f64));
    log.run(
        &[],
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, call.tensor(0))),
            _ => given(Ok(json!([counter.load(Ordering::Relaxed), counter.load(Ordering::Relaxed)]))),
        },
    );
}

pub fn python_globals_are_frozen(log: &mut Log) {
    let scope = log.scope.clone();
    let k = Arc::new(Mutex::new(10.0));
    let inside = k.clone();
    let f = Function::new(move |_: &dyn Scope, x: Tensor| x.add_scalar(*inside.lock().unwrap()));
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            if call.name == "f" {
                return given(f.call(&scope, call.tensor(0)));
            }
            *k.lock().unwrap() = call.named["v"].number();
            given(Ok(()))
        },
    );
}

pub fn tensor_and_variable_capture(log: &mut Log) {
    let scope = log.scope.clone();
    let t = scalar(2.0f32);
    let v = Variable::new(&scope, "Variable", &scalar(3.0f32)).unwrap();
    let inside = v.clone();
    let f = Function::new(move |scope: &dyn Scope, x: Tensor| x.mul(&t)?.add(&scope.read(&inside)?));
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            let concrete = || f.concrete(&scope, &scalar(1.0f32)).unwrap();
            if call.name == "f" {
                given(f.call(&scope, call.tensor(0)))
            } else if call.name == "v.assign" {
                given(scope.assign(&v, &call.tensor(0)).and_then(|()| scope.read(&v)))
            } else if call.text.starts_with("len(") {
                let graph = concrete();
                let constants = (0..graph.traced().values.len()).filter(|&id| graph.traced().constant(id).is_some()).count();
                given(Ok(json!(constants + graph.variables().len())))
            } else {
                given(Ok(json!(concrete().variables().iter().map(|v| format!("{}:0", v.name())).collect::<Vec<_>>())))
            }
        },
    );
}

pub fn assignments_persist(log: &mut Log) {
    let scope = log.scope.clone();
    let a = Variable::new(&scope, "a", &scalar(0.0f32)).unwrap();
    let inside = a.clone();
    let f = Function::new(move |scope: &dyn Scope, ()| {
        scope.assign_add(&inside, &scalar(1.0f32))?;
        scope.read(&inside)
    });
    log.run(
        &[],
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, ())),
            "a" => given(scope.read(&a)),
            _ => given(scope.assign(&a, &call.tensor(0)).and_then(|()| scope.read(&a))),
        },
    );
}

const ONE_TRACE: &str = "TensorFlow traces a second time after variables were created; here the first trace is good";

pub fn variable_created_every_call(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, x: Tensor| {
        let v = Variable::new(scope, "v", &scalar(1.0f32))?;
        scope.assign_add(&v, &x)?;
        scope.read(&v)
    });
    log.run(&[], none, |call| {
        // Only the first trace may create variables, as a layer's first call does.
        assert_eq!(f.call(&scope, call.tensor(0)).unwrap().item::<f32>(), Ok(2.0));
        let late = f.call(&scope, vector(&[1.0f32])).err().unwrap().to_string();
        assert!(late.contains("only while a function is traced for the first time"), "{late}");
        differs("the body runs once for the first trace, so it creates its variable once: the second trace fails")
    });
}

pub fn variable_created_once(log: &mut Log) {
    let (page, scope) = (log.page.clone(), log.scope.clone());
    let v = Variable::deferred("v");
    let inside = v.clone();
    let m = Function::new(move |scope: &dyn Scope, x: Tensor| {
        inside.create(scope, &scalar(1.0f32))?;
        page.say("trace");
        scope.assign_add(&inside, &x)?;
        scope.read(&inside)
    });
    let mut first = true;
    log.run(&[("requested dtype float32", "add(f32[], i32[])")], none, |call| {
        let outcome = if call.name == "m" { given(m.call(&scope, call.tensor(0))) } else { given(scope.read(&v)) };
        if std::mem::take(&mut first) { outcome.other_prints(ONE_TRACE) } else { outcome }
    });
}

pub fn variable_created_on_second_trace(log: &mut Log) {
    let scope = log.scope.clone();
    let vs: Arc<Mutex<Vec<Variable>>> = Arc::default();
    let f = Function::new(move |scope: &dyn Scope, x: Tensor| {
        let mut vs = vs.lock().unwrap();
        if vs.is_empty() {
            vs.push(Variable::new(scope, "v", &scalar(1.0f32))?);
        } else if x.dims().len() == 1 {
            vs.push(Variable::new(scope, "w", &scalar(2.0f32))?);
        }
        scope.read(vs.last().unwrap())?.add(&x.sum(&[], false)?)
    });
    let errors = [("singleton tf.Variables", "only while a function is traced for the first time")];
    log.run(&errors, || Some(f.traces()), |call| given(f.call(&scope, call.tensor(0))).other_traces(ONE_TRACE));
}

pub fn leaking_a_symbolic_tensor(log: &mut Log) {
    let scope = log.scope.clone();
    let held: Arc<Mutex<Option<Tensor>>> = Arc::default();
    let f = {
        let held = held.clone();
        Function::new(move |_: &dyn Scope, x: Tensor| {
            *held.lock().unwrap() = Some(x.mul_scalar(2.0)?);
            Ok(x)
        })
    };
    let leaked = || held.lock().unwrap().clone().unwrap();
    let g = {
        let held = held.clone();
        Function::new(move |_: &dyn Scope, x: Tensor| held.lock().unwrap().as_ref().unwrap().add(&x))
    };
    let errors = [("out of scope", "is invalid after the trace"), ("no attribute 'numpy'", "it has no value")];
    log.run(
        &errors,
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, call.tensor(0))),
            "g" => given(g.call(&scope, call.tensor(0))),
            "box[0] + 1" => given(leaked().add_scalar(1.0)),
            _ => given(leaked().to_vec::<f32>().map(|_| ())),
        },
    );
}

/// Calls a traced function with this body.
fn traced<R: Structure + 'static>(log: &Log, x: Tensor, body: fn(Tensor) -> gradlet_core::Result<R>) -> gradlet_core::Result<R> {
    Function::new(move |_: &dyn Scope, x: Tensor| body(x)).call(&log.scope, x)
}

pub fn symbolic_tensor_misuse(log: &mut Log) {
    let own = Log::of("symbolic_tensor_misuse");
    let no_value = "the tensor belongs to a trace: it has no value";
    let errors = [("'numpy'", no_value), ("Python `bool`", no_value), ("Iterating", no_value)];
    log.run(&errors, none, |call| {
        let x = call.tensor(0);
        match call.name.as_str() {
            "g1" => given(traced(&own, x, |x| x.to_vec::<i32>().map(|_| x.clone()))),
            "g2" | "g3" => given(traced(&own, x, |x| x.cast(x.dtype()))),
            "g4" => given(traced(&own, x, |x| if x.item::<f32>()? > 0.0 { Ok(x) } else { x.neg() })),
            "g5" => differs("a Tensor is no Iterator: the compiler says so; unstack(0) gives its rows, which a trace knows the number of"),
            _ => given(traced(&own, x, |x| (0..x.item::<i32>()?).try_fold(x.clone(), |x, _| Ok(x)))),
        }
    });
}

pub fn runtime_error_inside(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|_: &dyn Scope, (x, i): (Tensor, Tensor)| x.gather(&i, 0)?.add_scalar(1.0));
    log.run(&[("is not in [0, 2)", "less than 2")], || Some(f.traces()), |call| given(f.call(&scope, (call.tensor(0), call.tensor(1)))));
}

pub fn shape_error_while_tracing(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|_: &dyn Scope, (a, b): (Tensor, Tensor)| a.matmul(&b));
    let open = "the graph has no open dimensions here: a plan for these shapes fails as the call does";
    let errors = [
        ("Dimensions must be equal, but are 3 and 2", "matmul(f32[2,3], f32[2,3])"),
        ("Matrix size-incompatible", "matmul(f32[2,3], f32[2,3])"),
        ("Incompatible shapes: [2] vs. [3]", "add(f32[2], f32[3])"),
        ("was expected to be a int32 tensor but is a float", "f32["),
        ("Input to reshape is a tensor with 4 values", "f32[4] cannot be reshaped to [3]"),
        ("has 2 elements, but got `shape` (3,)", "cannot create a i32[3] tensor from 2 elements"),
        ("Dimension 1 in both shapes must be equal", "concat(f32[2,2], f32[3,3])"),
    ];
    let eval = |text: &str| crate::function::python::eval(text).tensor();
    let mut calls = 0;
    log.run(
        &errors,
        || Some(f.traces()),
        |call| {
            calls += 1;
            let plus = call.text.split_once(" + ");
            let outcome = match (call.name.as_str(), plus) {
                (_, Some((a, b))) => given(eval(a).add(&eval(b))),
                ("f", _) => given(f.call(&scope, (call.tensor(0), call.tensor(1)))),
                ("tf.matmul", _) => given(call.tensor(0).matmul(&call.tensor(1))),
                ("tf.reshape", _) => given(call.tensor(0).reshape(&[3])),
                ("tf.constant", _) => given(Tensor::new(&scope.device(), &[1i32, 2], &[3])),
                ("tf.concat", _) => {
                    let Arg::List(all) = &call.args[0] else { panic!("no list") };
                    given(Tensor::concat(&all.iter().map(Arg::tensor).collect::<Vec<_>>(), 0))
                }
                _ => given(f.concrete(&scope, &(eval("tf.ones([2, 3])"), eval("tf.ones([2, 3])"))).map(|_| ())),
            };
            if calls > 2 { outcome.other_traces(open) } else { outcome }
        },
    );
}

pub fn order_of_effects(log: &mut Log) {
    let scope = log.scope.clone();
    let v = Variable::new(&scope, "v", &scalar(1.0f32)).unwrap();
    let f = Function::new(move |scope: &dyn Scope, ()| {
        let a = scope.read(&v)?;
        scope.assign(&v, &scalar(5.0f32))?;
        let b = scope.read(&v)?;
        scope.assign_add(&v, &a)?;
        scope.print("first {}", &[&a])?;
        scope.print("second {}", &[&b])?;
        let d = scope.read(&v)?.add_scalar(0.0)?;
        Ok((a, b, d))
    });
    log.run(&[], || Some(f.traces()), |_| given(f.call(&scope, ())));
}
