//! Buffers of compiled functions. A function reads its arguments without a copy, and updates variables in place. It never changes a
//! buffer with another owner.

use gradlet_core::custom_op::{Call, OpCode, OpDef};
use gradlet_core::custom_op::{Gradient, Op};
use gradlet_core::{DType, Device, Eager, Error, Function, Kernel, Result, Scope, Tensor, Variable, ops};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn vector(scope: &Eager, values: &[f32]) -> Tensor {
    Tensor::new(&scope.device(), values, &[values.len() as u32]).unwrap()
}

/// Returns a function that adds its argument to the variable, and returns the sum.
fn adder(variable: &Variable) -> Function<Tensor, Tensor> {
    let variable = variable.clone();
    Function::new(move |scope: &dyn Scope, x: Tensor| {
        let sum = scope.read(&variable)?.add(&x)?;
        scope.assign(&variable, &sum)?;
        Ok(sum)
    })
}

#[test]
fn what_was_read_or_returned_never_changes() {
    let scope = Eager::new(&ops::portable_cpu());
    let first = vector(&scope, &[1.0, 2.0]);
    let variable = Variable::new(&scope, "v", &first).unwrap();
    let add = adder(&variable);
    let mut seen = vec![first, scope.read(&variable).unwrap()];
    for _ in 0..3 {
        seen.push(add.call(&scope, vector(&scope, &[1.0, 1.0])).unwrap());
        seen.push(scope.read(&variable).unwrap());
    }
    let values: Vec<f32> = seen.iter().map(|tensor| tensor.to_vec::<f32>().unwrap()[0]).collect();
    assert_eq!(values, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
}

#[test]
fn a_variable_may_be_its_own_argument() {
    let scope = Eager::new(&ops::portable_cpu());
    let variable = Variable::new(&scope, "v", &vector(&scope, &[1.0, 2.0])).unwrap();
    let add = adder(&variable);
    for _ in 0..2 {
        add.call(&scope, scope.read(&variable).unwrap()).unwrap();
    }
    assert_eq!(scope.read(&variable).unwrap().to_vec::<f32>().unwrap(), [4.0, 8.0]);
}

#[test]
fn arguments_constants_and_variables_can_be_results() {
    let scope = Eager::new(&ops::portable_cpu());
    let variable = Variable::new(&scope, "v", &vector(&scope, &[5.0])).unwrap();
    let read = variable.clone();
    let all = Function::new(move |scope: &dyn Scope, x: Tensor| {
        let constant = Tensor::scalar(&scope.device(), 7.0f32);
        let sum = x.add(&x)?;
        Ok(vec![x.clone(), x.reshape(&[2, 1])?, constant, scope.read(&read)?, sum.clone(), sum.reshape(&[1, 2])?, sum])
    });
    let x = vector(&scope, &[1.0, 2.0]);
    let before = all.call(&scope, x.clone()).unwrap();
    scope.assign(&variable, &vector(&scope, &[6.0])).unwrap();
    let after = all.call(&scope, vector(&scope, &[3.0, 4.0])).unwrap();
    let values = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.to_vec::<f32>().unwrap()).collect::<Vec<_>>();
    let wanted = |a: f32, b: f32, v: f32| {
        let (x, sum) = (vec![a, b], vec![2.0 * a, 2.0 * b]);
        vec![x.clone(), x, vec![7.0], vec![v], sum.clone(), sum.clone(), sum]
    };
    assert_eq!(values(&before), wanted(1.0, 2.0, 5.0));
    assert_eq!(values(&after), wanted(3.0, 4.0, 6.0));
    assert_eq!((before[1].dims(), before[5].dims()), (&[2, 1][..], &[1, 2][..]));
}

#[test]
fn planned_bytes_count_everything_once() {
    let scope = Eager::new(&ops::portable_cpu());
    let variable = Variable::new(&scope, "v", &Tensor::full(&scope.device(), 1.0f32, &[1000]).unwrap()).unwrap();
    let add = adder(&variable);
    let concrete = add.concrete(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1000]).unwrap()).unwrap();
    assert_eq!(concrete.planned_bytes().unwrap(), 4000);
}

/// Two threads add to two variables in opposite order, and a third reads both.
#[test]
fn functions_on_several_threads_share_variables() {
    const ROUNDS: usize = 300;
    let scope = Eager::new(&ops::portable_cpu());
    let variable = || Variable::new(&scope, "v", &Tensor::full(&scope.device(), 0.0f32, &[1000]).unwrap()).unwrap();
    let (a, b) = (variable(), variable());
    let both = |first: &Variable, second: &Variable| {
        let (first, second) = (first.clone(), second.clone());
        Function::new(move |scope: &dyn Scope, x: Tensor| {
            scope.assign(&first, &scope.read(&first)?.add(&x)?)?;
            scope.assign(&second, &scope.read(&second)?.add(&x)?).map(|()| x.clone())
        })
    };
    let (read_a, read_b) = (a.clone(), b.clone());
    let sum = Function::new(move |scope: &dyn Scope, (): ()| scope.read(&read_a)?.add(&scope.read(&read_b)?)?.mean(&[], false));
    let swap = |from: &Variable, to: &Variable| {
        let (from, to) = (from.clone(), to.clone());
        Function::new(move |scope: &dyn Scope, x: Tensor| {
            let old = scope.read(&to)?;
            scope.assign(&to, &scope.read(&from)?.mul(&x)?.add(&old)?)?;
            Ok(x)
        })
    };
    let (forth, back, copies, copied) = (both(&a, &b), both(&b, &a), swap(&a, &b), swap(&b, &a));
    let one = Tensor::scalar(&scope.device(), 1.0f32);
    let zero = Tensor::scalar(&scope.device(), 0.0f32);
    std::thread::scope(|threads| {
        for (function, argument) in [(&forth, &one), (&back, &one), (&copies, &zero), (&copied, &zero)] {
            let scope = &scope;
            threads.spawn(move || (0..ROUNDS).for_each(|_| drop(function.call(scope, argument.clone()).unwrap())));
        }
        let mut last = 0.0;
        for _ in 0..ROUNDS {
            let now = sum.call(&scope, ()).unwrap().item::<f32>().unwrap();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    });
    assert_eq!(sum.call(&scope, ()).unwrap().item::<f32>().unwrap(), 4.0 * ROUNDS as f32);
}

#[test]
fn a_refused_run_gives_the_variables_back() {
    let scope = Eager::new(&ops::portable_cpu());
    let variable = Variable::new(&scope, "v", &vector(&scope, &[1.0, 2.0])).unwrap();
    let assigned = variable.clone();
    let choose = Function::new(move |scope: &dyn Scope, labels: Tensor| {
        let old = scope.read(&assigned)?;
        let loss = old.reshape(&[1, 2])?.sparse_softmax_cross_entropy(&labels)?.mean(&[], false)?;
        scope.assign(&assigned, &old.add(&loss)?)?;
        Ok(loss)
    });
    let label = |label: i32| Tensor::new(&scope.device(), &[label], &[1]).unwrap();
    let error = choose.call(&scope, label(2)).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { value: 2, limit: 2, .. }), "{error}");
    assert_eq!(scope.read(&variable).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    choose.call(&scope, label(1)).unwrap();
    assert!(scope.read(&variable).unwrap().to_vec::<f32>().unwrap()[0] > 1.0);
}

/// Calls a function twice. It adds its argument to a variable, and then runs `checks` on the argument. `checks` accepts the first argument,
/// but not the second. The second call must fail, and must not change the variable.
fn check_refused(device: &Device, checks: fn(&dyn Scope, Tensor) -> Result<Tensor>) {
    let scope = Eager::new(device);
    let variable = Variable::new(&scope, "v", &vector(&scope, &[1.0, 2.0])).unwrap();
    let assigned = variable.clone();
    let function = Function::new(move |scope: &dyn Scope, x: Tensor| {
        scope.assign(&assigned, &scope.read(&assigned)?.add(&x)?)?;
        checks(scope, x)
    });
    function.call(&scope, vector(&scope, &[3.0, 4.0])).unwrap();
    function.call(&scope, vector(&scope, &[1.0, 9.0])).unwrap_err();
    assert_eq!(scope.read(&variable).unwrap().to_vec::<f32>().unwrap(), [4.0, 6.0]);
}

#[test]
fn a_failed_assertion_leaves_the_variables() {
    check_refused(&ops::portable_cpu(), |_, x| x.less(&x.like(5.0)?)?.assert("x must be small").map(|()| x));
}

static PICKY: OpDef = OpDef { code: OpCode(60_000), name: "picky", in_place: &[], ..ops::relu::DEF };
static PICKY_OP: Op = Op::new(&PICKY, "picky(x), of elements below 5", Gradient::Missing("nobody asked"));
static PICKY_F32: Kernel = Kernel { def: &PICKY, dtype: DType::F32, run: pick };

fn pick(call: &mut Call<'_, '_>) -> Result<()> {
    let small = call.input(0)?.slice::<f32>().iter().all(|&element| element < 5.0);
    if small { (ops::relu::F32.run)(call) } else { Err(Error::message("an element is too large")) }
}

/// A user-defined op may refuse its data, unless it declares that it never does.
#[test]
fn an_op_of_ones_own_is_checked_before_variables_are_written() {
    static KERNELS: &[&Kernel] = &[&PICKY_F32, &ops::add::F32];
    check_refused(&Device::cpu("picky", KERNELS), |scope, x| Ok(scope.emit(&PICKY_OP, &[], &[&x])?.remove(0)));
}

static PANICS: AtomicBool = AtomicBool::new(true);
static FUSE: OpDef = OpDef { code: ops::relu::DEF.code, in_place: &[], ..ops::relu::DEF };
static FUSE_OP: Op = Op::new(&FUSE, "fuse(x)", Gradient::Missing("it blows"));
static FUSE_F32: Kernel = Kernel { def: &FUSE, dtype: DType::F32, run: blow };

fn blow(call: &mut Call<'_, '_>) -> Result<()> {
    assert!(!PANICS.load(Ordering::Relaxed), "the fuse blows");
    (ops::relu::F32.run)(call)
}

#[test]
fn a_panic_gives_the_variables_back() {
    static KERNELS: &[&Kernel] = &[&FUSE_F32, &ops::add::F32];
    let scope = Eager::new(&Device::cpu("blown", KERNELS));
    let variable = Variable::new(&scope, "v", &vector(&scope, &[1.0, 2.0])).unwrap();
    let assigned = variable.clone();
    let function = Arc::new(Function::new(move |scope: &dyn Scope, x: Tensor| {
        let blown = scope.emit(&FUSE_OP, &[], &[&x])?.remove(0);
        scope.assign(&assigned, &scope.read(&assigned)?.add(&blown)?)?;
        Ok(blown)
    }));
    let x = vector(&scope, &[1.0, 1.0]);
    assert!(catch_unwind(AssertUnwindSafe(|| function.call(&scope, x.clone()))).is_err());
    assert_eq!(scope.read(&variable).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0]);
    PANICS.store(false, Ordering::Relaxed);
    function.call(&scope, x).unwrap();
    assert_eq!(scope.read(&variable).unwrap().to_vec::<f32>().unwrap(), [2.0, 3.0]);
}
