//! Ported programs with branches and loops that tensors control.

use crate::function::log::{Log, differs, fail, given, none};
use crate::function::python::{Arg, eval, scalar};
use gradlet_core::control::foldl;
use gradlet_core::control::{WhileOptions, cond, switch_case, while_loop};
use gradlet_core::scope::{Finite, observed};
use gradlet_core::{DType, Differentiate, Function, Print, Result, Scope, Tensor, TensorSpec, ops};

/// Returns `x > value` as a tensor.
fn over(x: &Tensor, value: f64) -> Result<Tensor> {
    x.greater(&x.like(value)?)
}

pub fn if_on_tensor(log: &mut Log) {
    let (page, scope) = (log.page.clone(), log.scope.clone());
    let f = Function::new(move |scope: &dyn Scope, x: Arg| {
        let then = |x: &Tensor| {
            page.say("trace then");
            x.mul(x)
        };
        let otherwise = || {
            page.say("trace else");
            Ok(scalar(0i32))
        };
        match x {
            Arg::Tensor(x) => cond(scope, &over(&x, 0.0)?, || then(&x), otherwise),
            number if number.number() > 0.0 => then(&number.tensor()),
            _ => otherwise(),
        }
    });
    let errors =
        [("main branch, but dtype int32 in the else", "value 0 is f32[] in the branch for true, but i32[] in the branch for false")];
    log.run(&errors, || Some(f.traces()), |call| given(f.call(&scope, call.args[0].clone())));
}

pub fn if_dtype_mismatch(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, x: Tensor| cond(scope, &over(&x, 0.0)?, || Ok(scalar(1i32)), || Ok(scalar(1.5f32))));
    let errors = [("'y' has dtype int32", "value 0 is i32[] in the branch for true, but f32[] in the branch for false")];
    log.run(&errors, || Some(f.traces()), |call| given(f.call(&scope, call.tensor(0))));
}

pub fn if_shape_mismatch(log: &mut Log) {
    let scope = log.scope.clone();
    let ones = |count: u32| move || Tensor::full(&gradlet_core::ops::portable_cpu(), 1.0f32, &[count]);
    let f = Function::new(move |scope: &dyn Scope, x: Tensor| cond(scope, &over(&x, 0.0)?, ones(2), ones(3)));
    log.run(&[], none, |call| {
        if call.name == "f" {
            let error = f.call(&scope, call.tensor(0)).err().unwrap().to_string();
            assert_eq!(error, "value 0 is f32[2] in the branch for true, but f32[3] in the branch for false");
        }
        differs("memory is planned: both branches must give the same shapes, there are no open ones")
    });
}

pub fn if_none_in_one_branch(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, x: Tensor| cond(scope, &over(&x, 0.0)?, || x.mul_scalar(2.0).map(Some), || Ok(None)));
    let errors = [("'y' is None at the end of the else branch", "host values must be the same, only tensors can differ")];
    log.run(&errors, || Some(f.traces()), |call| given(f.call(&scope, call.tensor(0))));
}

pub fn early_return(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, x: Tensor| cond(scope, &over(&x, 10.0)?, || Ok(x.clone()), || x.neg()));
    let g = Function::new(|scope: &dyn Scope, x: Tensor| cond(scope, &over(&x, 0.0)?, || Ok(Some(x.clone())), || Ok(None)));
    let errors = [("the else branch must also have a return", "host values must be the same, only tensors can differ")];
    log.run(
        &errors,
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, call.tensor(0))),
            _ => given(g.call(&scope, call.tensor(0))),
        },
    );
}

pub fn while_on_tensor(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, n: Arg| {
        let state = (scalar(0i32), scalar(0i32));
        let next = |(i, s): (Tensor, Tensor)| Ok((i.add_scalar(1.0)?, s.add(&i)?));
        match n {
            Arg::Tensor(n) => while_loop(scope, WhileOptions::default(), state, |(i, _)| i.less(&n), next),
            n => (0..n.number() as i32).try_fold(state, |state, _| next(state)),
        }
    });
    log.run(&[], || Some(f.traces()), |call| given(f.call(&scope, call.args[0].clone())));
}

pub fn for_range_break_continue(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, n: Tensor| {
        // The sum of all i < n except 2, up to the first i greater than 5.
        let state = (scalar(0i32), scalar(0i32));
        let holds = |(i, _): &(Tensor, Tensor)| i.less(&n)?.logical_and(&over(i, 5.0)?.logical_not()?);
        let next = |(i, s): (Tensor, Tensor)| {
            let s = cond(scope, &i.equal(&i.like(2.0)?)?, || Ok(s.clone()), || s.add(&i))?;
            Ok((i.add_scalar(1.0)?, s))
        };
        Ok(while_loop(scope, WhileOptions::default(), state, holds, next)?.1)
    });
    log.run(&[], || Some(f.traces()), |call| given(f.call(&scope, call.tensor(0))));
}

pub fn for_over_tensor_rows(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, x: Tensor| {
        foldl(scope, &x, eval("tf.zeros([2])").tensor(), |s, row| s.mul_scalar(0.5)?.add(&row))
    });
    log.run(&[], || Some(f.traces()), |call| given(f.call(&scope, call.tensor(0))));
}

/// Doubles the length of a vector of one zero `n` times.
fn doubled(scope: &dyn Scope, n: &Tensor) -> Result<Tensor> {
    let state = (scalar(0i32), eval("tf.zeros([1])").tensor());
    let next = |(i, x): (Tensor, Tensor)| Ok((i.add_scalar(1.0)?, Tensor::concat(&[&x, &x], 0)?));
    Ok(while_loop(scope, WhileOptions::default(), state, |(i, _)| i.less(n), next)?.1)
}

pub fn loop_variable_changes_shape(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, n: Tensor| doubled(scope, &n));
    let errors =
        [("shape (1,) before the loop", "value 1 is f32[1] in the state before the loop, but f32[2] in the state after one iteration")];
    log.run(
        &errors,
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, call.tensor(0))),
            _ => {
                // Eagerly, the loop is Rust's own loop, and the shape may change.
                assert_eq!(doubled(&scope, &call.tensor(0)).unwrap().dims(), [1 << call.tensor(0).item::<i32>().unwrap()]);
                differs("memory is planned: there are no shape invariants with open dimensions, a traced loop keeps its shapes")
            }
        },
    );
}

pub fn loop_variable_changes_dtype(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, n: Tensor| {
        let state = (scalar(0i32), scalar(0i32));
        let next = |(i, x): (Tensor, Tensor)| Ok((i.add_scalar(1.0)?, x.add(&scalar(0.5f32))?));
        Ok(while_loop(scope, WhileOptions::default(), state, |(i, _)| i.less(&n), next)?.1)
    });
    let errors = [("does not match type int32", "add(i32[], f32[])")];
    log.run(&errors, || Some(f.traces()), |call| given(f.call(&scope, call.tensor(0))));
}

pub fn cond_while_case_directly(log: &mut Log) {
    let scope = log.scope.clone();
    type Three = (Tensor, Tensor, Tensor);
    let f = Function::new(|scope: &dyn Scope, (p, a, b): Three| cond(scope, &p, || a.add_scalar(1.0), || b.mul_scalar(10.0)));
    let zero = || scalar(0i32);
    let count = |options: WhileOptions, below: f64| {
        while_loop(&scope, options, (zero(), zero()), |(i, _)| i.less(&i.like(below)?), |(i, s)| Ok((i.add_scalar(1.0)?, s.add(&i)?)))
    };
    log.run(
        &[],
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, (call.tensor(0), call.tensor(1), call.tensor(2)))),
            "tf.while_loop" if call.text.contains("(i + 1,)") => {
                differs("a body that gives another structure than it takes does not compile")
            }
            "tf.while_loop" => match call.named.get("maximum_iterations") {
                Some(most) => {
                    let options = WhileOptions { max_iterations: Some(most.number() as u32) };
                    given(count(options, 100.0).map(|(i, _)| vec![i]))
                }
                None => given(count(WhileOptions::default(), 4.0)),
            },
            "tf.switch_case" => {
                let branches: [&dyn Fn() -> Result<Tensor>; 2] = [&|| Ok(scalar(10i32)), &|| Ok(scalar(20i32))];
                given(switch_case(&scope, &call.tensor(0), &branches))
            }
            "tf.case" => {
                let [first, second] = ["tf.constant(False)", "tf.constant(True)"].map(|text| eval(text).tensor());
                let rest = || cond(&scope, &second, || Ok(scalar(2i32)), || Ok(scalar(3i32)));
                given(cond(&scope, &first, || Ok(scalar(1i32)), rest))
            }
            _ => {
                let error = cond(&scope, &call.tensor(0), || Ok(1i32), || Ok(2)).err().unwrap().to_string();
                assert_eq!(error, "cond's predicate must be bool[], not i32[]");
                differs("a predicate must be of bool: a number is compared first, as everywhere in Rust")
            }
        },
    );
}

pub fn logical_operators(log: &mut Log) {
    let scope = log.scope.clone();
    let number = |value: i32| move || Ok(scalar(value));
    let choose = move |scope: &dyn Scope, x: &Tensor, third: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let small = over(x, 0.0)?.logical_and(&x.less(&x.like(10.0)?)?)?;
        let odd = x.equal(&x.like(0.0)?)?.logical_or(&third(x)?)?;
        cond(scope, &small, number(1), || cond(scope, &odd, number(2), number(3)))
    };
    let f = Function::new(move |scope: &dyn Scope, x: Tensor| choose(scope, &x, &|x| over(x, 100.0)));
    let g = Function::new(move |scope: &dyn Scope, x: Tensor| choose(scope, &x, &|x| x.less_equal(&x.like(100.0)?)?.logical_not()));
    log.run(&[], none, |call| {
        if call.name == "g" {
            return given(g.call(&scope, call.tensor(0)));
        }
        assert_eq!(f.call(&scope, call.tensor(0)).unwrap().item::<i32>(), Ok(1));
        differs("an AutoGraph limit: where every way ends in a value, as Rust demands, there is nothing left out")
    });
}

pub fn tf_print_in_function(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, x: Tensor| {
        while_loop(
            scope,
            WhileOptions::default(),
            scalar(0i32),
            |i| i.less(&scalar(3i32)),
            |i| {
                scope.print("step {} {}", &[&i, &x.add(&i)?])?;
                i.add_scalar(1.0)
            },
        )?;
        cond(scope, &over(&x.sum(&[], false)?, 0.0)?, || scope.print("positive", &[]), || Ok(()))?;
        Ok(x)
    });
    log.run(&[], || Some(f.traces()), |call| given(f.call(&scope, call.tensor(0))));
}

pub fn gradient_through_control_flow(log: &mut Log) {
    let scope = log.scope.clone();
    let f = Function::new(|scope: &dyn Scope, x: Tensor| {
        let y = cond(scope, &over(&x.sum(&[], false)?, 0.0)?, || x.mul(&x), || x.neg())?;
        let next = |(i, y): (Tensor, Tensor)| Ok((i.add_scalar(1.0)?, y.mul(&x)?));
        Ok(while_loop(scope, WhileOptions::default(), (scalar(0i32), y), |(i, _)| i.less(&scalar(3i32)), next)?.1)
    });
    let gradient = |x: &Tensor| {
        let tape = scope.tape();
        let x = tape.watch(x)?;
        let y = f.call(&tape, x.clone())?;
        let gradient = tape.gradient(&y, &x)?;
        Ok((y, gradient))
    };
    log.run(&[], || Some(f.traces()), |call| given(gradient(&call.tensor(0))));
}

pub fn assertions(log: &mut Log) {
    let scope = log.scope.clone();
    // A Rust `if` needs a value, which a traced tensor does not have.
    let f = Function::new(move |_: &dyn Scope, x: Arg| match x {
        Arg::Tensor(x) if x.item::<i32>()? > 0 => Ok(x),
        Arg::Int(x) if x > 0 => Ok(scalar(x as i32)),
        _ => fail("too small"),
    });
    let positive = |x: Tensor| over(&x, 0.0)?.assert("too small").map(|()| x);
    let g = Function::new(move |_: &dyn Scope, x: Tensor| positive(x));
    let two_columns = Function::new(|_: &dyn Scope, x: Tensor| Ok(x)).named("f");
    let two_columns = two_columns.with_signature(&[TensorSpec::new(DType::F32, &[None, Some(2)])]);
    let shape = "must be f32[?,2], got f32[2,3]";
    let errors = [
        ("Python `bool`", "the tensor belongs to a trace: it has no value"),
        ("too small", "too small"),
        ("Condition x == y did not hold", "the same: the assertion fails at position 1"),
        ("dimension 1 must have size 2", shape),
        ("Tensor had NaN values", "returned NaN at position 1"),
        ("not compatible with expected shape [?,2]", shape),
        ("to be true. Summarized data", "data 5"),
    ];
    log.run(
        &errors,
        || Some(f.traces()),
        |call| match call.name.as_str() {
            "f" => given(f.call(&scope, call.args[0].clone())),
            "g" => given(g.call(&scope, call.tensor(0))),
            "e" => given(positive(call.tensor(0))),
            "tf.debugging.assert_equal" => given(call.tensor(0).equal(&call.tensor(1)).and_then(|same| same.assert("the same"))),
            "tf.debugging.check_numerics" => {
                given(observed(&scope, Finite::new()).emit(&ops::identity::OP, &[], &[&call.tensor(0)]).map(|_| ()))
            }
            "tf.Assert" => given(call.tensor(0).assert("data 5")),
            _ => given(two_columns.call(&scope, eval("tf.ones([2, 3])").tensor())),
        },
    );
}
