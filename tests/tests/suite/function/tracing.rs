//! Ported programs about retracing: the signatures and the number of traces.

use crate::function::log::{Log, differs, fail, given, none};
use crate::function::python::{Arg, scalar, tuple};
use gradlet_core::function::{Part, Structure};
use gradlet_core::{DType, Function, Print, Result, Scope, Tensor, TensorSpec, Variable};
use serde_json::json;
use std::sync::{Arc, Mutex};

const REPLANNED: &str = "plans have fixed shapes: the body runs again to be planned for a new one, which is no new trace";
const COMPILED: &str = "the types of arguments are checked by the compiler";

pub fn trace_by_dtype_and_python_value(log: &mut Log) {
    let page = log.page.clone();
    let f = Function::new(move |scope: &dyn Scope, x: Arg| match &x {
        Arg::Tensor(tensor) => {
            page.say("tracing with tensor");
            scope.print("running with {}", &[tensor])
        }
        number => {
            page.say(&format!("tracing with {}", number.repr()));
            scope.print(&format!("running with {}", number.repr()), &[])
        }
    });
    let scope = log.scope.clone();
    log.run(&[], || Some(f.traces()), |call| given(f.call(&scope, call.args[0].clone())));
}

pub fn trace_by_shape(log: &mut Log) {
    let page = log.page.clone();
    let f = Function::new(move |_: &dyn Scope, x: Tensor| {
        page.say(&format!("tracing shape {}", tuple(x.dims())));
        x.sum(&[], false)
    });
    let scope = log.scope.clone();
    log.run(
        &[],
        || Some(f.traces()),
        |call| match &call.args[0] {
            Arg::Tensor(x) => given(f.call(&scope, x.clone())),
            _ => differs(COMPILED),
        },
    );
}

pub fn python_lists_are_nested_inputs(log: &mut Log) {
    let page = log.page.clone();
    let f = Function::new(move |_: &dyn Scope, x: Arg| {
        page.say("trace");
        let (Arg::List(all) | Arg::Tuple(all)) = x else { return fail("no list") };
        let mut all = all.iter().map(|arg| arg.tensor().cast(DType::F32));
        let first = all.next().unwrap()?;
        all.try_fold(first, |sum, x| sum.add(&x?))
    });
    let scope = log.scope.clone();
    log.run(&[], || Some(f.traces()), |call| given(f.call(&scope, call.args[0].clone())));
}

pub fn reduce_retracing(log: &mut Log) {
    let device = log.device.clone();
    let f = Function::new(move |_: &dyn Scope, x: Tensor| {
        let dims: Vec<i32> = x.dims().iter().map(|&dim| dim as i32).collect();
        Tensor::new(&device, &dims, &[dims.len() as u32])
    });
    let f = f.reduce_retracing();
    let scope = log.scope.clone();
    log.run(&[], || Some(f.traces()), |call| given(f.call(&scope, call.tensor(0))).other_prints(REPLANNED));
}

pub fn other_python_arguments(log: &mut Log) {
    let page = log.page.clone();
    let f = Function::new(move |_: &dyn Scope, (x, flag, name, n): (Tensor, bool, String, Option<i64>)| {
        let (flag_text, n) = (Arg::Bool(flag).repr(), n.map_or("None".to_string(), |n| n.to_string()));
        page.say(&format!("trace {flag_text} {name} {n}"));
        x.add_scalar(if flag { 1.0 } else { -1.0 })
    });
    let scope = log.scope.clone();
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            let arg = |index: usize, name: &str| call.args.get(index).or(call.named.get(name)).cloned();
            let Some(Arg::Tensor(x)) = arg(0, "x") else { panic!("no tensor") };
            let flag = !matches!(arg(1, "flag"), Some(Arg::Bool(false)));
            let name = match arg(2, "name") {
                Some(Arg::Text(name)) => name,
                _ => "n".into(),
            };
            let n = match arg(3, "n") {
                Some(Arg::Int(n)) => Some(n),
                _ => None,
            };
            given(f.call(&scope, (x, flag, name, n)))
        },
    );
}

/// An object that is compared by its identity.
#[derive(Clone)]
struct Object {
    id: u64,
    k: Arc<Mutex<f64>>,
}

impl Structure for Object {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        visit(Part::Host(self.id));
    }
    fn with(&self, _: &mut dyn FnMut() -> Tensor) -> Object {
        self.clone()
    }
}

pub fn object_arguments(log: &mut Log) {
    let page = log.page.clone();
    let object = |id| Object { id, k: Arc::new(Mutex::new(1.0)) };
    let (a, b) = (object(1), object(2));
    let f = Function::new(move |_: &dyn Scope, (x, o): (Tensor, Object)| {
        page.say("trace");
        x.mul_scalar(*o.k.lock().unwrap())
    });
    let scope = log.scope.clone();
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            if call.name == "setattr" {
                *a.k.lock().unwrap() = call.args[2].number();
                return given(Ok(()));
            }
            let Arg::Raw(name) = &call.args[1] else { panic!("no object") };
            given(f.call(&scope, (call.tensor(0), if name == "a" { a.clone() } else { b.clone() })))
        },
    );
}

pub fn variable_arguments(log: &mut Log) {
    let page = log.page.clone();
    let scope = log.scope.clone();
    let f = Function::new(move |scope: &dyn Scope, v: Arg| {
        let value = match v {
            Arg::Variable(v) => scope.read(&v)?,
            other => other.tensor(),
        };
        page.say(&format!("trace {}", tuple(value.dims())));
        value.add_scalar(1.0)
    });
    let variable = |name: &str, values: &[f32], dims: &[u32]| {
        Variable::new(&scope, name, &Tensor::new(&scope.device(), values, dims).unwrap()).unwrap()
    };
    let all = [variable("a", &[1.0], &[]), variable("b", &[2.0], &[]), variable("d", &[1.0, 2.0], &[2])];
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            let argument = match &call.args[0] {
                Arg::Raw(name) => Arg::Variable(all.iter().find(|v| v.name() == name).unwrap().clone()),
                other => other.clone(),
            };
            given(f.call(&scope, argument))
        },
    );
}

pub fn two_variable_arguments_aliasing(log: &mut Log) {
    let scope = log.scope.clone();
    let page = log.page.clone();
    let f = Function::new(move |scope: &dyn Scope, (v, w): (Variable, Variable)| {
        page.say("trace");
        scope.assign_add(&v, &scalar(1.0f32))?;
        scope.read(&w)
    });
    let [a, b] = [("a", 1.0f32), ("b", 10.0)].map(|(name, value)| Variable::new(&scope, name, &scalar(value)).unwrap());
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            let [v, w] = [0, 1].map(|index| match &call.args[index] {
                Arg::Raw(name) if name == "a" => a.clone(),
                _ => b.clone(),
            });
            given(f.call(&scope, (v, w)))
        },
    );
}

pub fn input_signature(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|_: &dyn Scope, x: Tensor| x.sum(&[], false));
    let f = f.named("f").with_signature(&[TensorSpec::new(DType::F32, &[None]).named("x")]);
    let wrong = "argument 0 of f must be x: f32[?], got ";
    let errors = [("shape=(2, 2)", wrong), ("tf.int32", wrong), ("tf.float64", wrong), ("shape=()", "f32[?], got f32[]")];
    log.run(
        &errors,
        || Some(f.traces()),
        |call| match call.args.first().or(call.named.get("x")) {
            _ if call.args.len() > 1 => differs(COMPILED),
            None => differs(COMPILED),
            Some(_) if call.text == "f(np.ones(2))" => {
                differs("TensorFlow casts NumPy's doubles; here there are tensors only, and no casts unasked")
            }
            Some(x) => given(f.call(&scope, x.tensor())).other_prints(REPLANNED),
        },
    );
}

pub fn input_signature_two(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|_: &dyn Scope, (a, n): (Tensor, Tensor)| a.mul(&n.cast(DType::F32)?));
    let signature = [TensorSpec::new(DType::F32, &[None, Some(2)]).named("a"), TensorSpec::new(DType::I32, &[]).named("n")];
    let f = f.named("f").with_signature(&signature);
    let errors = [
        ("shape=(1, 7)", "argument 0 of f must be a: f32[?,2], got f32[1,7]"),
        ("3.5", "argument 1 of f must be n: i32[], got f32[]"),
        ("shape=(5, 5)", "argument 0 of f must be a: f32[?,2], got f32[5,5]"),
    ];
    log.run(
        &errors,
        || Some(f.traces()),
        |call| {
            if call.text.contains("tf.TensorSpec") {
                return given(f.concrete(&scope, &(crate::function::python::eval("tf.zeros([5, 5])").tensor(), scalar(0i32))).map(|_| ()));
            }
            if call.name != "f" {
                let concrete = f.concrete(&scope, &(crate::function::python::eval("tf.zeros([1, 2])").tensor(), scalar(0i32))).unwrap();
                let specs: Vec<_> = concrete.signature().iter().map(|spec| json!({ "repr": repr(spec) })).collect();
                return given(Ok(json!([specs, {}])));
            }
            given(f.call(&scope, (call.tensor(0), call.tensor(1)))).other_prints(REPLANNED)
        },
    );
}

/// Formats a spec like Python's `repr`.
fn repr(spec: &TensorSpec) -> String {
    let dims: Vec<String> = spec.dims().unwrap().iter().map(|dim| dim.map_or("None".into(), |dim| dim.to_string())).collect();
    let dtype = if spec.dtype() == DType::F32 { "tf.float32" } else { "tf.int32" };
    format!("TensorSpec(shape=({}), dtype={dtype}, name='{}')", dims.join(", "), spec.name().unwrap())
}

pub fn methods_trace_per_instance(log: &mut Log) {
    struct A {
        f: Function<Tensor, Tensor>,
    }
    let (page, scope) = (log.page.clone(), log.scope.clone());
    let of = |k: i32| {
        let page = page.clone();
        let f = Function::new(move |_: &dyn Scope, x: Tensor| {
            page.say(&format!("trace {k}"));
            x.mul_scalar(f64::from(k))
        });
        A { f }
    };
    let (a, b) = (of(2), of(3));
    log.run(&[], none, |call| match call.name.as_str() {
        "a.f" => given(a.f.call(&scope, call.tensor(0))),
        "b.f" => given(b.f.call(&scope, call.tensor(0))),
        _ => given(Ok(json!([a.f.traces(), b.f.traces()]))),
    });
}

pub fn retracing_warning(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|_: &dyn Scope, x: Arg| Ok(x.tensor()));
    log.run(&[], || Some(f.traces()), |call| given(f.call(&scope, call.args[0].clone())));
}

pub fn run_eagerly(log: &mut Log) {
    let (page, scope) = (log.page.clone(), log.scope.clone());
    let body = Arc::new(move |_: &dyn Scope, x: Tensor| {
        page.say("python");
        x.add_scalar(1.0)
    });
    let f = {
        let body = body.clone();
        Function::new(move |scope: &dyn Scope, x: Tensor| body(scope, x))
    };
    // There is no global switch. To run a function's body eagerly, the caller calls the body.
    let mut eagerly = false;
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            if call.name != "f" {
                eagerly = matches!(call.args[0], Arg::Bool(true));
                return given(Ok(()));
            }
            given(if eagerly { body(&scope, call.tensor(0)) } else { f.call(&scope, call.tensor(0)) })
        },
    );
}

pub fn nested_functions(log: &mut Log) {
    let (page, scope) = (log.page.clone(), log.scope.clone());
    let inner = {
        let page = page.clone();
        Arc::new(Function::new(move |_: &dyn Scope, x: Tensor| {
            page.say("trace inner");
            x.mul_scalar(2.0)
        }))
    };
    let f = {
        let inner = inner.clone();
        Function::new(move |scope: &dyn Scope, x: Tensor| {
            page.say("trace outer");
            inner.call(scope, x.clone())?.add(&inner.call(scope, x.add_scalar(1.0)?)?)
        })
    };
    log.run(
        &[],
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, call.tensor(0))),
            "inner" => given(inner.call(&scope, call.tensor(0))),
            _ => given(Ok(json!(inner.traces()))),
        },
    );
}

pub fn python_range_is_unrolled(log: &mut Log) {
    let (page, scope) = (log.page.clone(), log.scope.clone());
    let f = Function::new(move |_: &dyn Scope, (x, n): (Tensor, i64)| {
        (0..n).try_fold(x, |x, i| {
            page.say(&format!("python iteration {i}"));
            x.mul_scalar(2.0)
        })
    });
    let number = |arg: &Arg| arg.number() as i64;
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            if call.name == "f" {
                return given(f.call(&scope, (call.tensor(0), number(&call.args[1]))));
            }
            // The text of the call contains the number of iterations.
            let n = call.text.rsplit_once("tf.constant(1), ").unwrap().1.split(')').next().unwrap().parse().unwrap();
            let concrete = f.concrete(&scope, &(scalar(1i32), n)).unwrap();
            given(Ok(json!(concrete.traced().nodes.iter().filter(|node| node.op.def.name == "mul").count())))
        },
    );
}

pub fn return_structures(log: &mut Log) {
    use crate::function::log::Out;
    let scope = log.scope.clone();
    type Named = (Tensor, (Tensor, Vec<Tensor>), Option<Tensor>, i32);
    let f = Function::new(|_: &dyn Scope, x: Tensor| -> Result<Named> {
        Ok((x.clone(), (x.add_scalar(1.0)?, vec![x.mul_scalar(2.0)?]), None, 7))
    });
    log.run(
        &[],
        || Some(f.traces()),
        |call| {
            let named = f
                .call(&scope, call.tensor(0))
                .map(|(a, b, n, k)| Out::Named(vec![("a", a.into()), ("b", b.into()), ("n", n.into()), ("k", json!(k).into())]));
            given(named)
        },
    );
}
