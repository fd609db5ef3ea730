//! Checks xprof's tools for a trace of a device that has a clock: the times of its ops and kernels, and the parts of the training steps.

use crate::tensorboard::python;
use gradlet::profiler::{Options, trace_on};
use gradlet::{Eager, Function, Result, Scope, Tensor};
use gradlet_tests::hiding::Hiding;

const SCRIPT: &str = include_str!("gpu.py");

/// Text that xprof's data should give. A launch takes 1 µs by the device's clock, and the transfer of a byte 0.01 µs.
const WANTED: &str = "\
op Min: 2 in 2
op Mul: 2 in 2
kernel Min:Min: 2 in 2
kernel Mul:Exp_Mul: 2 in 2
step 0: compute 2, input 4, output 0.04
step 1: compute 2, input 4, output 0.04
stream: MemcpyHToD 4
stream: Exp_Mul 1
stream: Min 1
stream: MemcpyDToH 0.04
stream: MemcpyHToD 4
stream: Exp_Mul 1
stream: Min 1
stream: MemcpyDToH 0.04
memory: GPU:0
";

#[test]
#[ignore = "needs xprof: `cargo xtask test TensorBoard` installs and runs it"]
fn xprof_shows_the_times_of_a_device() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let hiding = Hiding::clocked("GPU:0", true);
    let trace = trace_on(&hiding.device, Options { graph: false, profiler: true });
    let scope = Eager::new(trace.device());
    let norm = Function::new(|_: &dyn Scope, x: Tensor| x.exp()?.mul(&x)?.min(&[], false)).named("norm");
    for number in 0..2 {
        let _step = trace.step("train", number);
        norm.call(&scope, Tensor::new(&scope.device(), &[1.0f32; 100], &[100])?)?.item::<f32>()?;
    }
    let profile = trace.timeline()?.write(folder.path(), "run").unwrap();
    assert_eq!(python(SCRIPT, &[profile.to_str().unwrap()]), WANTED);
    Ok(())
}
