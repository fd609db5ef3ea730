//! Placement: guards, their threads and contexts, and devices that lack a kernel.

use super::{gpu, machine, refuses, two_cpus};
use gradlet::autodiff::custom_gradient;
use gradlet::config::{Context, Environment, LogicalOptions, Physical};
use gradlet::control::{WhileOptions, while_loop};
use gradlet::custom_op::Backward;
use gradlet::device::Cpu;
use gradlet::distribute::MirroredStrategy;
use gradlet::{Device, Eager, Function, Kernel, Result, Scope, Tensor, Variable, ops};
use std::sync::{Arc, LazyLock};

/// Creates two numbers on the device of `scope`.
fn pair(scope: &dyn Scope) -> Result<Tensor> {
    Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])
}

/// Returns the name of the device on which `scope` creates tensors.
fn place(scope: &dyn Scope) -> String {
    scope.device().name().into()
}

#[test]
fn wrong_names_are_refused() -> Result<()> {
    let (context, _) = machine(1);
    let scope = context.scope()?;
    for name in ["nonsense", "GPU:one", "/device:GPU", "CPU:0:1", "/replica:x/GPU:0"] {
        refuses(scope.with_device(name), &[name, "is not the name of a device"]);
        refuses(context.device(name), &[name, "is not the name of a device"]);
        refuses(MirroredStrategy::new(&context, &[name]), &[name]);
    }
    for name in ["/job:other/device:CPU:0", "/task:1/device:CPU:0"] {
        refuses(scope.with_device(name), &[name, "there are CPU:0, GPU:0"]);
        refuses(context.device(name), &[name, "there are CPU:0, GPU:0"]);
    }
    // A name that was refused has no effect.
    assert_eq!(place(&scope), "GPU:0");
    Ok(())
}

#[test]
fn a_device_on_its_own_runs_nothing_elsewhere() -> Result<()> {
    let scope = Eager::new(&gradlet::cpu());
    refuses(scope.with_device("CPU:0"), &["CPU:0", "on its own", "gradlet::config::Context"]);
    let everywhere = scope.without_device();
    assert_eq!(pair(&scope)?.neg()?.to_vec::<f32>()?, [-1.0, -2.0]);
    drop(everywhere);
    let context = two_cpus()?;
    let x = Tensor::scalar(&context.device("CPU:0")?, 1.0f32);
    let y = Tensor::scalar(&context.device("CPU:1")?, 2.0f32);
    refuses(x.add(&y), &["CPU:0 and CPU:1", "copy one of them with `to`"]);
    Ok(())
}

#[test]
fn the_innermost_open_guard_counts() -> Result<()> {
    let (context, _) = machine(2);
    let scope = context.scope()?;
    let outer = scope.with_device("CPU:0")?;
    let middle = scope.with_device("GPU:1")?;
    let inner = scope.without_device();
    assert_eq!(place(&scope), "GPU:0");
    // Guards can be dropped in any order.
    drop(middle);
    assert_eq!(place(&scope), "GPU:0");
    drop(inner);
    assert_eq!(place(&scope), "CPU:0");
    let middle = scope.with_device("GPU:1")?;
    drop(outer);
    assert_eq!((place(&scope), pair(&scope)?.neg()?.device()?.name()), ("GPU:1".into(), "GPU:1"));
    // A name without an index keeps that of the guard around it.
    let index = scope.with_device("GPU")?;
    assert_eq!(place(&scope), "GPU:1");
    drop((middle, index));
    assert_eq!(place(&scope), "GPU:0");
    let first = scope.with_device("GPU")?;
    assert_eq!(place(&scope), "GPU:0");
    drop(first);
    Ok(())
}

#[test]
fn guards_of_two_contexts_do_not_influence_each_other() -> Result<()> {
    let ((first, _), (second, _)) = (machine(2), machine(2));
    let (own, other) = (first.scope()?, second.scope()?);
    let there = own.with_device("GPU:1")?;
    let beside = other.with_device("CPU:0")?;
    assert_eq!((place(&own), place(&other)), ("GPU:1".into(), "CPU:0".into()));
    assert_eq!((pair(&own)?.neg()?.device()?.name(), pair(&other)?.neg()?.device()?.name()), ("GPU:1", "CPU:0"));
    drop(there);
    assert_eq!((place(&own), place(&other)), ("GPU:0".into(), "CPU:0".into()));
    drop(beside);
    assert_eq!(place(&other), "GPU:0");
    Ok(())
}

#[test]
fn a_guard_holds_for_its_thread() -> Result<()> {
    let (context, _) = machine(2);
    let scope = context.scope()?;
    let there = scope.with_device("GPU:1")?;
    let elsewhere = || -> Result<[String; 3]> {
        let before = place(&scope);
        let own = scope.with_device("CPU:0")?;
        let during = place(&scope);
        drop(own);
        Ok([before, during, place(&scope)])
    };
    let places = std::thread::scope(|threads| threads.spawn(elsewhere).join().unwrap())?;
    assert_eq!(places, ["GPU:0", "CPU:0", "GPU:0"]);
    assert_eq!(place(&scope), "GPU:1");
    drop(there);
    Ok(())
}

#[test]
fn contexts_exchange_tensors() -> Result<()> {
    let ((first, _), (second, _)) = (machine(1), machine(1));
    let (own, other) = (first.scope()?, second.scope()?);
    let (x, y) = (pair(&own)?, pair(&other)?);
    let devices = [first.device("GPU:0")?, second.device("GPU:0")?];
    assert!(devices[0] != devices[1]);
    // The first input decides, unless the program computes in a scope.
    for (sum, device) in [(x.add(&y)?, &devices[0]), (y.add(&x)?, &devices[1])] {
        assert_eq!(sum.to_vec::<f32>()?, [2.0, 4.0]);
        assert!(sum.device()? == *device);
    }
    let beside = other.with_device("CPU:0")?;
    assert!(x.add(&y)?.device()? == devices[0]);
    drop(beside);
    let double = Function::new(|_: &dyn Scope, x: Tensor| x.add(&x));
    for (scope, device) in [(&own, &devices[0]), (&other, &devices[1])] {
        for argument in [&x, &y] {
            let result = double.call(scope, argument.clone())?;
            assert_eq!(result.to_vec::<f32>()?, [2.0, 4.0]);
            assert!(result.device()? == *device);
        }
    }
    let v = Variable::new(&own, "v", &x)?;
    other.assign_add(&v, &y)?;
    assert_eq!(other.read(&v)?.to_vec::<f32>()?, [2.0, 4.0]);
    assert!(v.device()? == devices[0]);
    Ok(())
}

#[test]
fn tensors_outlive_their_context() -> Result<()> {
    let (context, gpus) = machine(1);
    let scope = context.scope()?;
    let there = scope.with_device("CPU:0")?;
    let x = pair(&scope)?;
    drop(there);
    let y = x.neg()?;
    drop((scope, context, gpus));
    assert_eq!((y.to_vec::<f32>()?, y.device()?.name()), (vec![-1.0, -2.0], "GPU:0"));
    let sum = x.sub(&y)?;
    assert_eq!((sum.to_vec::<f32>()?, sum.device()?.name()), (vec![2.0, 4.0], "GPU:0"));
    Ok(())
}

/// A GPU without a kernel for matrix products.
struct Lacking;

impl Physical for Lacking {
    fn device_type(&self) -> &str {
        "GPU"
    }

    fn create(&self, name: &str, _: &LogicalOptions) -> Result<Device> {
        static KERNELS: LazyLock<Vec<&'static Kernel>> =
            LazyLock::new(|| ops::KERNELS.iter().copied().filter(|kernel| kernel.def.name != "matmul").collect());
        Ok(Device::new(Cpu::new(name, &KERNELS)))
    }
}

/// Adds `x`, a matrix, to its square, which the GPU computes if it can.
fn named(scope: &dyn Scope, x: &Tensor) -> Result<[Tensor; 2]> {
    let there = scope.with_device("GPU:0")?;
    let product = x.matmul(x)?;
    drop(there);
    Ok([product.clone(), product.add(x)?])
}

/// Adds `x`, a matrix, to its square.
fn unnamed(_: &dyn Scope, x: &Tensor) -> Result<[Tensor; 2]> {
    let product = x.matmul(x)?;
    Ok([product.clone(), product.add(x)?])
}

#[test]
fn an_op_moves_to_a_device_with_a_kernel() -> Result<()> {
    let context = Context::portable([Arc::new(Lacking) as Arc<dyn Physical>], &Environment::default());
    assert_eq!(context.list_physical_devices(Some("GPU")), [gpu(0)]);
    let scope = context.scope()?;
    let x = Tensor::new(&scope.device(), &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    assert_eq!(x.device()?.name(), "GPU:0");
    for body in [named, unnamed] {
        let function = Function::new(move |scope: &dyn Scope, x: Tensor| body(scope, &x));
        let eager = body(&scope, &x)?;
        let compiled = function.call(&scope, x.clone())?;
        for [product, sum] in [&eager, &compiled] {
            assert_eq!(product.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
            assert_eq!(sum.to_vec::<f32>()?, [8.0, 12.0, 18.0, 26.0]);
        }
        // The results of a function are on its device.
        let places = [&eager, &compiled].map(|[product, sum]| [product, sum].map(|one| one.device().unwrap().name().to_string()));
        assert_eq!(places, [["CPU:0", "GPU:0"], ["GPU:0", "GPU:0"]]);
    }
    // Only a device that the program names must compute the op.
    context.set_soft_device_placement(false);
    let refused = ["GPU:0 has no kernel for matmul on f32", "set_soft_device_placement(true)"];
    refuses(named(&scope, &x), &refused);
    refuses(Function::new(|scope: &dyn Scope, x: Tensor| named(scope, &x)).call(&scope, x.clone()), &refused);
    assert_eq!(unnamed(&scope, &x)?[0].device()?.name(), "CPU:0");
    let function = Function::new(|scope: &dyn Scope, x: Tensor| unnamed(scope, &x));
    assert_eq!(function.call(&scope, x)?[1].to_vec::<f32>()?, [8.0, 12.0, 18.0, 26.0]);
    Ok(())
}

#[test]
fn loops_and_custom_gradients_run_where_the_program_says() -> Result<()> {
    let (context, _) = machine(2);
    let scope = context.scope()?;
    for soft in [true, false] {
        context.set_soft_device_placement(soft);
        let grown = Function::new(|scope: &dyn Scope, x: Tensor| {
            let small = |x: &Tensor| x.sum(&[], false)?.less(&x.sum(&[], false)?.like(20.0)?);
            while_loop(scope, WhileOptions::default(), x, small, |x| x.add(&x))
        });
        let negative = Function::new(|_: &dyn Scope, x: Tensor| {
            let forward = |x: &[&Tensor]| Ok(vec![x[0].neg()?]);
            Ok(custom_gradient(&[&x], forward, |of: &Backward<'_>| Ok([of.dy().cloned().ok()].into_iter().collect()))?.remove(0))
        });
        for name in ["CPU:0", "GPU:0", "GPU:1"] {
            let there = scope.with_device(name)?;
            let x = pair(&scope)?;
            for (function, wanted) in [(&grown, [8.0, 16.0]), (&negative, [-1.0, -2.0])] {
                let result = function.call(&scope, x.clone())?;
                assert_eq!((result.to_vec::<f32>()?, result.device()?.name()), (wanted.to_vec(), name));
            }
            drop(there);
        }
    }
    Ok(())
}
