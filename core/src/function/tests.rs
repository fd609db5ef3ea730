//! Tests of the devices of arguments and of the plans that functions keep.

extern crate std;
use super::*;
use crate::autodiff::Differentiate as _;
use crate::base::dtype::DType;
use crate::base::shape::Shape;
use crate::ops::{self, portable_cpu};
use crate::trace::eager::Eager;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::string::ToString;
use std::vec;

/// A device other than [`portable_cpu`].
fn other() -> Device {
    Device::cpu("other CPU", ops::KERNELS)
}

fn told<T>(result: Result<T>) -> String {
    result.err().map_or("nothing".into(), |error| error.to_string())
}

type Pair = (Tensor, Tensor);

#[test]
fn an_argument_of_another_device_is_refused() {
    let scope = Eager::new(&portable_cpu());
    let [here, there] = [portable_cpu(), other()].map(|device| Tensor::scalar(&device, 2.0f32));
    let f = Function::new(|_: &dyn Scope, (x, _): Pair| x.neg()).named("f");
    let error = "argument 1 of f is on other CPU, but the function runs on portable CPU:0: copy it with `to`";
    assert_eq!(told(f.call(&scope, (here.clone(), there.clone()))), error);
    assert_eq!(f.traces(), 0);
    assert_eq!(told(f.call(&scope.tape(), (here.clone(), there.clone()))), error);
    let inner = Function::new(move |scope: &dyn Scope, x: Tensor| f.call(scope, (x, there.clone()))).named("inner");
    assert_eq!(told(inner.call(&scope, here.clone())), error);

    let specs = ["x", "y"].map(|name| TensorSpec::any(DType::F32).named(name));
    let named = Function::new(|_: &dyn Scope, (x, y): Pair| x.add(&y)).named("named").with_signature(&specs);
    let concrete = named.concrete(&scope, &(here.clone(), here.clone())).unwrap();
    let there = Tensor::scalar(&other(), 2.0f32);
    let error = "argument 0 (x) of named is on other CPU, but the function runs on portable CPU:0: copy it with `to`";
    assert_eq!(told(named.call(&scope, (there.clone(), here.clone()))), error);
    assert_eq!(told(concrete.run(&[there, here.clone()])), error);
    assert_eq!(concrete.run(&[here.clone(), here]).unwrap()[0].item::<f32>().unwrap(), 4.0);
}

#[test]
fn a_variable_or_a_constant_of_another_device_is_refused() {
    let scope = Eager::new(&portable_cpu());
    let [here, there] = [portable_cpu(), other()].map(|device| Tensor::scalar(&device, 2.0f32));
    let w = Variable::new(&scope, "w", &there).unwrap();
    let read = Function::new(move |scope: &dyn Scope, x: Tensor| scope.read(&w)?.add(&x));
    let error = "variable \"w\" is on other CPU, but the function runs on portable CPU:0: create it there";
    assert_eq!(told(read.call(&scope, here.clone())), error);
    let assign = Function::new(|scope: &dyn Scope, (w, x): (Variable, Tensor)| scope.assign_add(&w, &x));
    let w = Variable::new(&scope, "w", &there).unwrap();
    assert_eq!(told(assign.call(&scope, (w.clone(), here.clone()))), error);
    assert_eq!(w.value().unwrap().item::<f32>().unwrap(), 2.0, "it has its bytes again");
    let constant = Function::new(move |_: &dyn Scope, x: Tensor| x.add(&there));
    let error = told(constant.call(&scope, here));
    assert_eq!(
        error,
        "a tensor f32[] that the function's body uses is on other CPU, but the function runs on portable CPU:0: copy it with `to`"
    );
}

#[test]
fn handles_of_one_device_are_the_same_device() {
    let device = portable_cpu();
    let f = Function::new(|_: &dyn Scope, (x, y): Pair| x.add(&y));
    for scope in [&device, &device.printing(|_| ())].map(Eager::new) {
        for handle in [device.clone(), device.printing(|_| ()), device.summarizing(|_| Ok(())), portable_cpu()] {
            let [x, y] = [&device, &handle].map(|device| Tensor::scalar(device, 1.5f32));
            assert_eq!(f.call(&scope, (x, y)).unwrap().item::<f32>().unwrap(), 3.0);
        }
    }
}

/// Returns a function of vectors of any length, and the number of times that its body ran.
fn sums() -> (Function<Tensor, Tensor>, Shared<AtomicUsize>) {
    let runs = Shared::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let sums = Function::new(move |_: &dyn Scope, x: Tensor| {
        counted.fetch_add(1, Ordering::Relaxed);
        x.add(&x)?.sum(&[0], false)?.mul_scalar(0.5)
    });
    (sums.with_signature(&[TensorSpec::new(DType::F32, &[None])]), runs)
}

fn sum(f: &Function<Tensor, Tensor>, scope: &Eager, length: usize) -> f32 {
    f.call(scope, Tensor::full(&portable_cpu(), 1.0f32, &[length as u32]).unwrap()).unwrap().item().unwrap()
}

#[test]
fn a_symbolic_tensor_has_only_a_type() {
    let scope = Eager::new(&portable_cpu());
    let symbolic = |dims: &[u32]| Tensor::symbolic(TensorType::new(DType::F32, Shape::new(dims).unwrap()));
    let double = Function::new(|_: &dyn Scope, x: Tensor| x.add(&x));
    let large = double.concrete(&scope, &symbolic(&[1 << 20, 1 << 20])).unwrap();
    assert_eq!(large.inputs()[0].to_string(), "f32[1048576,1048576]");
    let x = symbolic(&[2]);
    let error = "the tensor is symbolic: it has a type, but no value";
    let captured = x.clone();
    let captures = Function::new(move |_: &dyn Scope, y: Tensor| y.add(&captured));
    let scalar = Tensor::scalar(&portable_cpu(), 1.0f32);
    for said in [
        told(double.call(&scope, x.clone())),
        told(double.concrete(&scope, &x).unwrap().run(core::slice::from_ref(&x))),
        told(captures.call(&scope, scalar)),
        told(x.add(&x)),
        told(x.to_vec::<f32>()),
        told(x.device()),
    ] {
        assert!(said.contains(error), "{said}");
    }
}

#[test]
fn the_last_plans_are_kept() {
    let scope = Eager::new(&portable_cpu());
    let (f, runs) = sums();
    let first = f.concrete(&scope, &Tensor::full(&portable_cpu(), 1.0f32, &[1]).unwrap()).unwrap();
    for length in 1..=600 {
        assert_eq!(sum(&f, &scope, length), length as f32);
        // A plan in regular use is kept.
        assert_eq!(sum(&f, &scope, 1), 1.0);
    }
    assert_eq!((f.traces(), runs.load(Ordering::Relaxed), f.state.lock().plans.len()), (1, 600, MAX_PLANS));
    assert_eq!(Shared::strong_count(&first), 2);
    // A plan that was kept, then one that was dropped.
    assert_eq!((sum(&f, &scope, 600), sum(&f, &scope, 600 - MAX_PLANS + 2), runs.load(Ordering::Relaxed)), (600.0, 538.0, 600));
    assert_eq!((sum(&f, &scope, 2), sum(&f, &scope, 2), runs.load(Ordering::Relaxed)), (2.0, 2.0, 601));
    assert_eq!(f.traces(), 1, "it is no other trace");
}

#[test]
fn a_plan_that_was_dropped_can_be_run_by_who_has_it() {
    let scope = Eager::new(&portable_cpu());
    let (f, _) = sums();
    let three = Tensor::new(&portable_cpu(), &[1.0f32, 2.0, 4.0], &[3]).unwrap();
    let held = f.concrete(&scope, &three).unwrap();
    assert_eq!(held.run(core::slice::from_ref(&three)).unwrap()[0].item::<f32>().unwrap(), 7.0);
    (10..10 + MAX_PLANS).for_each(|length| assert_eq!(sum(&f, &scope, length), length as f32));
    assert_eq!(Shared::strong_count(&held), 1);
    assert_eq!(held.run(core::slice::from_ref(&three)).unwrap()[0].item::<f32>().unwrap(), 7.0);
    drop(f);
    assert_eq!(held.run(&[three]).unwrap()[0].item::<f32>().unwrap(), 7.0);
}

#[test]
fn a_plan_can_be_dropped_while_it_runs() {
    use crate::ops::print::Print as _;
    let (f, dropped) = (Shared::new(Lock::new(None::<Function<Tensor, Tensor>>)), Shared::new(AtomicUsize::new(0)));
    let (known, count) = (f.clone(), dropped.clone());
    // While the first plan runs, calls with other lengths displace it. Each of them also runs and works in scratch memory.
    let device = portable_cpu().printing(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        let function = known.lock().take();
        for length in 10..10 + MAX_PLANS as u32 {
            let x = Tensor::full(&portable_cpu(), 1.0f32, &[length]).unwrap();
            let sum = function.as_ref().unwrap().call(&Eager::new(&portable_cpu()), x).unwrap();
            assert_eq!(sum.to_vec::<f32>().unwrap(), vec![4.0; length as usize]);
        }
        drop(function);
    });
    let function = Function::new(|scope: &dyn Scope, x: Tensor| {
        // The value `twice` is in scratch memory while the function prints.
        let twice = x.add(&x)?;
        scope.print("now", &[])?;
        twice.mul(&twice)
    });
    let scope = Eager::new(&device);
    let x = Tensor::new(&device, &[1.0f32, 3.0], &[2]).unwrap();
    let concrete = function.concrete(&scope, &x).unwrap();
    *f.lock() = Some(function);
    assert_eq!(concrete.run(&[x]).unwrap()[0].to_vec::<f32>().unwrap(), [4.0, 36.0]);
    assert!(f.lock().is_none() && dropped.load(Ordering::Relaxed) > 0);
}
