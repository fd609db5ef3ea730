//! Functions whose nodes are on several devices: two GPUs that hide their memory, or two logical CPUs.

use super::{machine, member, only, two_cpus};
use gradlet::config::Context;
use gradlet::control::{WhileOptions, cond, while_loop};
use gradlet::device::{Activity, Profiler};
use gradlet::{Device, Differentiate, Eager, Function, Result, Scope, Tensor, Variable};
use gradlet_tests::hiding::Hiding;
use std::sync::{Arc, Mutex};

/// Two devices of a context: that of a function, and another one.
type Places = [&'static str; 2];

/// Returns contexts, each with the names of two devices.
fn contexts() -> Result<[(Context, Places); 2]> {
    Ok([(machine(2).0, ["GPU:0", "GPU:1"]), (two_cpus()?, ["CPU:0", "CPU:1"])])
}

/// Creates a matrix on the device of `scope`.
fn matrix(scope: &dyn Scope) -> Result<Tensor> {
    Tensor::new(&scope.device(), &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])
}

/// Creates a variable with the value of [`matrix`] on the device that `scope` names `name`.
fn variable(scope: &dyn Scope, name: &str) -> Result<Variable> {
    let _there = scope.with_device(name)?;
    Variable::new(scope, "v", &matrix(scope)?)
}

/// Returns the name of the device of a tensor.
fn place(tensor: &Tensor) -> Result<String> {
    Ok(tensor.device()?.name().into())
}

/// Returns the elements of a variable, and the name of its device.
fn state(scope: &dyn Scope, variable: &Variable) -> Result<(Vec<f32>, String)> {
    Ok((scope.read(variable)?.to_vec()?, variable.device()?.name().into()))
}

/// Returns a function that squares each element of x here, multiplies the matrix by x on `there`, and adds x here.
fn hop(there: &'static str) -> Function<Tensor, Tensor> {
    Function::new(move |scope: &dyn Scope, x: Tensor| {
        let square = x.mul(&x)?;
        let away = scope.with_device(there)?;
        let product = square.matmul(&x)?;
        drop(away);
        product.add(&x)
    })
}

/// Elements of the result of [`hop`].
const HOPPED: [f32; 4] = [14.0, 20.0, 60.0, 86.0];

#[test]
fn results_are_right_and_on_the_device_of_the_function() -> Result<()> {
    for (context, [here, there]) in contexts()? {
        let (scope, function) = (context.scope()?, hop(there));
        for name in ["CPU:0", here, there] {
            let argument = matrix(&scope)?.to(&member(&scope, name)?)?;
            assert_eq!(place(&argument)?, name);
            for _ in 0..2 {
                let result = function.call(&scope, argument.clone())?;
                assert_eq!((result.to_vec::<f32>()?, place(&result)?), (HOPPED.to_vec(), here.into()), "{name}");
            }
            // A function that is called on a device has its results there.
            let guard = scope.with_device(name)?;
            for _ in 0..2 {
                let result = function.call(&scope, argument.clone())?;
                assert_eq!((result.to_vec::<f32>()?, place(&result)?), (HOPPED.to_vec(), name.into()));
            }
            drop(guard);
        }
    }
    Ok(())
}

#[test]
fn results_of_an_earlier_call_stay() -> Result<()> {
    for (context, [_, there]) in contexts()? {
        let (scope, function) = (context.scope()?, hop(there));
        let first = function.call(&scope, matrix(&scope)?)?;
        let second = function.call(&scope, matrix(&scope)?.mul_scalar(0.0)?)?;
        assert_eq!((first.to_vec::<f32>()?, second.to_vec::<f32>()?), (HOPPED.to_vec(), vec![0.0; 4]));
    }
    Ok(())
}

#[test]
fn variables_stay_on_their_devices() -> Result<()> {
    for (context, [here, there]) in contexts()? {
        let scope = context.scope()?;
        let (own, other) = (variable(&scope, here)?, variable(&scope, there)?);
        let captured = [own.clone(), other.clone()];
        // Each variable gets the sum of its elements and those of the other one, at the beginning of the call.
        let function = Function::new(move |scope: &dyn Scope, x: Tensor| {
            let [own, other] = [scope.read(&captured[0])?, scope.read(&captured[1])?];
            let away = scope.with_device(there)?;
            scope.assign(&captured[0], &own.add(&other)?)?;
            drop(away);
            scope.assign_add(&captured[1], &own)?;
            scope.read(&captured[1])?.mul(&x)
        });
        for call in 1..=3 {
            let factor = f32::powi(2.0, call);
            let wanted: Vec<f32> = [1.0, 2.0, 3.0, 4.0].iter().map(|element| element * factor).collect();
            let result = function.call(&scope, Tensor::scalar(&scope.device(), 10.0f32))?;
            let tenfold: Vec<f32> = wanted.iter().map(|element| element * 10.0).collect();
            assert_eq!((result.to_vec::<f32>()?, place(&result)?), (tenfold, here.into()));
            assert_eq!(state(&scope, &own)?, (wanted.clone(), here.into()));
            assert_eq!(state(&scope, &other)?, (wanted, there.into()));
        }
        // The same holds op by op.
        scope.assign(&other, &scope.read(&own)?.mul_scalar(0.0)?)?;
        scope.assign_sub(&other, &Tensor::full(&member(&scope, here)?, 1.0f32, &[2, 2])?)?;
        assert_eq!(state(&scope, &other)?, (vec![-1.0; 4], there.into()));
    }
    Ok(())
}

/// A program with a variable on each of two GPUs. Its function changes both, the second one in a later part.
struct Program {
    scope: Eager,
    gpus: [Hiding; 2],
    variables: [Variable; 2],
    function: Function<Tensor, Tensor>,
}

impl Program {
    fn new() -> Result<Program> {
        let (context, gpus) = machine(2);
        let scope = context.scope()?;
        let variables = [variable(&scope, "GPU:0")?, variable(&scope, "GPU:1")?];
        let captured = variables.clone();
        let function = Function::new(move |scope: &dyn Scope, x: Tensor| {
            scope.assign_add(&captured[0], &x)?;
            let sum = scope.read(&captured[0])?.square()?;
            let away = scope.with_device("GPU:1")?;
            let product = sum.matmul(&scope.read(&captured[1])?)?;
            scope.assign(&captured[1], &product.add(&x)?.matmul(&x)?)?;
            drop(away);
            product.sum(&[], false)?.neg()
        });
        Ok(Program { scope, gpus: [only(&gpus[0]), only(&gpus[1])], variables, function })
    }

    fn call(&self) -> Result<f32> {
        self.function.call(&self.scope, Tensor::full(&self.scope.device(), 1.0f32, &[2, 2])?)?.item()
    }

    fn state(&self) -> Result<Vec<(Vec<f32>, String)>> {
        self.variables.iter().map(|variable| state(&self.scope, variable)).collect()
    }
}

/// Calls a program's function, after `calls` calls without failure, so that GPU number `index` fails as `tell` says after some steps. Tries
/// every number of steps. A call that fails must leave all variables unchanged, and the next one must succeed.
fn fails_without_effect(calls: usize, index: usize, tell: fn(&Hiding, Option<u64>)) -> Result<()> {
    let wanted = Program::new()?;
    let mut results = Vec::new();
    for _ in 0..=calls {
        results.push((wanted.state()?, wanted.call()?));
    }
    let (before, result) = results.pop().unwrap();
    for steps in 0..100 {
        let program = Program::new()?;
        for _ in 0..calls {
            program.call()?;
        }
        tell(&program.gpus[index], Some(steps));
        let first = program.call();
        tell(&program.gpus[index], None);
        match first {
            Ok(got) => {
                assert_eq!((got, program.state()?), (result, wanted.state()?));
                assert!(steps > 1, "{steps} steps");
                return Ok(());
            }
            Err(_) => assert_eq!(program.state()?, before, "{steps} steps"),
        }
        assert_eq!(program.call()?, result, "{steps} steps");
        assert_eq!(program.state()?, wanted.state()?, "{steps} steps");
    }
    panic!("every call fails")
}

#[test]
fn a_part_that_fails_leaves_all_variables_unchanged() -> Result<()> {
    for calls in [0, 1, 2] {
        for index in [0, 1] {
            fails_without_effect(calls, index, Hiding::fail_after)?;
            fails_without_effect(calls, index, Hiding::refuse_after)?;
        }
    }
    Ok(())
}

#[test]
fn a_loop_and_a_branch_run_as_a_whole() -> Result<()> {
    for (context, [here, there]) in contexts()? {
        let scope = context.scope()?;
        let weight = variable(&scope, here)?;
        let function = Function::new(move |scope: &dyn Scope, x: Tensor| {
            let away = scope.with_device(there)?;
            let limit = Tensor::scalar(&scope.device(), 100.0f32);
            let grows = |x: &Tensor| x.sum(&[], false)?.less(&limit);
            let grown = while_loop(scope, WhileOptions::default(), x.clone(), grows, |x| x.add(&x))?;
            let large = grown.sum(&[], false)?.greater(&limit)?;
            let chosen = cond(scope, &large, || grown.add(&scope.read(&weight)?), || grown.neg())?;
            drop(away);
            chosen.add(&x)
        });
        // 1 + 2 + 3 + 4, doubled four times, is 160.
        let x = matrix(&scope)?;
        for _ in 0..2 {
            let result = function.call(&scope, x.clone())?;
            assert_eq!((result.to_vec::<f32>()?, place(&result)?), (vec![18.0, 36.0, 54.0, 72.0], here.into()));
        }
    }
    Ok(())
}

#[test]
fn nothing_of_a_loop_runs_on_another_device() -> Result<()> {
    let (context, gpus) = machine(2);
    let scope = context.scope()?;
    let function = Function::new(|scope: &dyn Scope, x: Tensor| {
        let away = scope.with_device("GPU:1")?;
        let limit = Tensor::scalar(&scope.device(), 100.0f32);
        let grown = while_loop(scope, WhileOptions::default(), x.clone(), |x| x.sum(&[], false)?.less(&limit), |x| x.add(&x))?;
        drop(away);
        grown.add(&x)
    });
    let x = matrix(&scope)?;
    function.call(&scope, x.clone())?;
    let (own, other) = (only(&gpus[0]), only(&gpus[1]));
    let before = [own.counts().launches, other.counts().launches];
    function.call(&scope, x)?;
    // The sum at the end runs here. The sums, comparisons and additions of four iterations, and the last condition, run there.
    assert_eq!(own.counts().launches - before[0], 1);
    assert!(other.counts().launches - before[1] >= 14);
    Ok(())
}

/// Returns the gradient of the sum of x⁴, half of which `there` computes: 4x³.
fn slope(scope: &dyn Scope, x: &Tensor, there: &Device) -> Result<Tensor> {
    let tape = scope.tape();
    let x = tape.watch(x)?;
    let square = x.mul(&x)?.to(there)?;
    let away = scope.with_device(there.name())?;
    let power = square.mul(&square)?;
    drop(away);
    let gradient = tape.gradient(&power.sum(&[], false)?, &x)?;
    Ok(gradient.expect("a gradient"))
}

#[test]
fn gradients_flow_from_one_device_to_another() -> Result<()> {
    for (context, [here, there]) in contexts()? {
        let scope = context.scope()?;
        let (x, away) = (matrix(&scope)?, member(&scope, there)?);
        let copied = away.clone();
        let function = Function::new(move |scope: &dyn Scope, x: Tensor| slope(scope, &x, &copied));
        let compiled = function.call(&scope, x.clone())?;
        assert_eq!(place(&compiled)?, here);
        for gradient in [slope(&scope, &x, &away)?, compiled, function.call(&scope, x.clone())?] {
            assert_eq!(gradient.to_vec::<f32>()?, [4.0, 32.0, 108.0, 256.0]);
        }
        // A tape around a function replays its nodes on their devices.
        let tape = scope.tape();
        let watched = tape.watch(&x)?;
        let y = hop(there).call(&tape, watched.clone())?;
        assert_eq!(y.to_vec::<f32>()?, HOPPED);
        let gradient = tape.gradient(&y.sum(&[], false)?, &watched)?.expect("a gradient");
        assert_eq!(gradient.to_vec::<f32>()?, [17.0, 39.0, 39.0, 77.0]);
    }
    Ok(())
}

/// Profiler that keeps the copies between devices, as from where to where.
#[derive(Default)]
struct Copies(Mutex<Vec<[String; 2]>>);

impl Profiler for Copies {
    fn begin(&self, activity: &Activity<'_>) {
        if let Activity::Copy(copy) = activity {
            self.0.lock().unwrap().push([copy.from, copy.to].map(|device| device.name().to_string()));
        }
    }

    fn end(&self) {}
}

#[test]
fn the_profiler_sees_each_copy_that_is_needed() -> Result<()> {
    for (context, [here, there]) in contexts()? {
        let copies = Arc::new(Copies::default());
        let scope = Eager::new(&context.scope()?.device().profiling(copies.clone()));
        let made = |work: &dyn Fn() -> Result<Tensor>| -> Result<Vec<[String; 2]>> {
            work()?;
            copies.0.lock().unwrap().clear();
            work()?;
            Ok(std::mem::take(&mut *copies.0.lock().unwrap()))
        };
        let (x, v) = (matrix(&scope)?, variable(&scope, there)?);
        let (to, back) = ([here, there], [there, here]);
        let none: &[[&str; 2]] = &[];
        // The square and x go there, and the product comes back.
        let function = hop(there);
        assert_eq!(made(&|| function.call(&scope, x.clone()))?, [to, to, back]);
        // The function computes all of its nodes there, so x goes there.
        assert_eq!(
            made(&|| {
                let _away = scope.with_device(there)?;
                function.call(&scope, x.clone())
            })?,
            [to]
        );
        // The variable's value comes here, and the new one goes back.
        let own = v.clone();
        let near = Function::new(move |scope: &dyn Scope, x: Tensor| {
            scope.assign_add(&own, &x)?;
            x.neg()
        });
        assert_eq!(made(&|| near.call(&scope, x.clone()))?, [back, to]);
        // The variable is changed where it is.
        let own = v.clone();
        let far = Function::new(move |scope: &dyn Scope, x: Tensor| {
            let away = scope.with_device(there)?;
            scope.assign_add(&own, &x)?;
            drop(away);
            x.neg()
        });
        assert_eq!(made(&|| far.call(&scope, x.clone()))?, [to]);
        let alone = Function::new(|_: &dyn Scope, x: Tensor| x.mul(&x)?.neg());
        assert_eq!(made(&|| alone.call(&scope, x.clone()))?, none);
        assert_eq!(made(&|| x.add(&scope.read(&v)?))?, [back]);
        assert_eq!(made(&|| x.add(&x))?, none);
    }
    Ok(())
}
