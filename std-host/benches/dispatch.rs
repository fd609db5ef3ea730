//! What the host spends on an op beside its kernel: eager and compiled.
//!
//! `cargo bench --package gradlet --bench dispatch`; the bars are 1 µs and 100 ns.

use gradlet::{Eager, Function, Result, Scope, Tensor};
use std::hint::black_box;
use std::time::Instant;

const CHAIN: u32 = 256;
const ROUNDS: u32 = 50;

fn main() -> Result<()> {
    let scope = Eager::new(&gradlet::cpu());
    let one = Tensor::new(&scope.device(), &[1.0f32], &[1])?;
    let eager = best(20_000, || black_box(&one).add(&one).map(drop))?;
    println!("eager op:      {eager:6.1} ns");

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
    Ok(())
}

/// Nanoseconds of a call: the best of many rounds, so that what else runs on the machine does not count.
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
