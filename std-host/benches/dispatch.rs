//! Measures overhead on the host: of an op without its kernel, eager and compiled, of its placement on one of several devices, and of a
//! loop iteration and a branch without their bodies.
//!
//! Run it with `cargo bench --package gradlet --bench dispatch`. The limits are 1 µs for an eager op, 10 ns for
//! its placement, 100 ns for a compiled node, and 200 ns for an iteration and for a branch.

use gradlet::config::{Context, Environment};
use gradlet::control::{WhileOptions, cond, while_loop};
use gradlet::tensor::Bool;
use gradlet::{Eager, Function, Result, Scope, Tensor};
use std::hint::black_box;
use std::time::Instant;

const CHAIN: u32 = 256;
const ROUNDS: u32 = 50;

fn main() -> Result<()> {
    let scope = Eager::new(&gradlet::cpu());
    let one = Tensor::new(&scope.device(), &[1.0f32], &[1])?;
    let context = Context::with_devices([], &Environment::default());
    let placed = context.scope()?;
    let here = Tensor::new(&placed.device(), &[1.0f32], &[1])?;
    let mut times = [f64::INFINITY; 3];
    // In turns, so that all three see the same machine.
    for _ in 0..5 {
        let add = |x: &Tensor| best(20_000, || black_box(x).add(x).map(drop));
        times[0] = times[0].min(add(&one)?);
        times[1] = times[1].min(add(&here)?);
        let _named = placed.with_device("CPU:0")?;
        times[2] = times[2].min(add(&here)?);
    }
    let [eager, automatic, named] = times;
    println!("eager op:      {eager:6.1} ns");
    println!("placement:     {:6.1} ns more, {:.1} ns with a named device", automatic - eager, named - eager);

    let chain = |nodes: u32| {
        let function = Function::new(move |_: &dyn Scope, x: Tensor| (0..nodes).try_fold(x.clone(), |sum, _| sum.add(&x)));
        let concrete = function.concrete(&scope, &one)?;
        assert_eq!(concrete.graph().nodes.len(), nodes as usize, "the optimiser took nodes away");
        let inputs = [one.clone()];
        best(500, || concrete.run(black_box(&inputs)).map(drop))
    };
    for nodes in [CHAIN / 4, CHAIN, 4 * CHAIN] {
        println!("compiled node: {:6.1} ns, in a call of {nodes}", chain(nodes)? / f64::from(nodes));
    }

    // The cost of additions in a loop and in branches, minus the cost of the same additions in a chain.
    let more =
        |long: Body, short: Body| -> Result<f64> { Ok((time(&scope, &one, long)? - time(&scope, &one, short)?) / f64::from(3 * CHAIN)) };
    let plain =
        more(|_, x| (0..4 * CHAIN).try_fold(x.clone(), |sum, _| sum.add(&x)), |_, x| (0..CHAIN).try_fold(x.clone(), |sum, _| sum.add(&x)))?;
    let turns = more(|scope, x| turns(scope, x, 4 * CHAIN), |scope, x| turns(scope, x, CHAIN))?;
    let branched = more(|scope, x| branches(scope, x, 4 * CHAIN), |scope, x| branches(scope, x, CHAIN))?;
    println!("iteration:     {:6.1} ns beside its body", turns - plain);
    println!("branch:        {:6.1} ns beside its body", branched - plain);
    Ok(())
}

type Body = fn(&dyn Scope, Tensor) -> Result<Tensor>;

/// Compiles `body`, and returns the time of one call in nanoseconds.
fn time(scope: &Eager, x: &Tensor, body: Body) -> Result<f64> {
    let concrete = Function::new(move |scope: &dyn Scope, x: Tensor| body(scope, x)).concrete(scope, x)?;
    let inputs = [x.clone()];
    best(200, || concrete.run(black_box(&inputs)).map(drop))
}

/// Adds `x` `count` times in a loop whose condition is always true, so that only `max_iterations` ends it.
fn turns(scope: &dyn Scope, x: Tensor, count: u32) -> Result<Tensor> {
    let always = Tensor::scalar(&scope.device(), Bool::from(true));
    while_loop(scope, WhileOptions { max_iterations: Some(count) }, x.clone(), |_| Ok(always.clone()), |sum| sum.add(&x))
}

/// Adds `x` `count` times, each time in a branch.
fn branches(scope: &dyn Scope, x: Tensor, count: u32) -> Result<Tensor> {
    let positive = x.like(0.0)?.less(&x)?.reshape(&[])?;
    (0..count).try_fold(x.clone(), |sum, _| cond(scope, &positive, || sum.add(&x), || sum.sub(&x)))
}

/// Returns the time of one call in nanoseconds: the mean of `calls` calls, in the fastest of many rounds. Other programs on the machine
/// therefore do not distort it.
fn best(calls: u32, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(calls));
    }
    Ok(best)
}
