//! Checks xprof's tool `memory_profile` for a trace: the memory over time, its peak, and its holders.

use crate::tensorboard::python;
use gradlet::profiler::{Options, trace_on};
use gradlet::{Result, Tensor};

const SCRIPT: &str = include_str!("memory.py");

/// Text that xprof's data should give: the peak and the limit, each change with the bytes in use after it, and the holders at the peak. The
/// end of an allocation has the holder of the allocation. Holders are not among the ops.
const WANTED: &str = "\
CPU:0: peak 1200 of 4096
ALLOCATION 400 -> 400 memory from before the trace
ALLOCATION 396 -> 800 tensors
ALLOCATION 396 -> 1200 tensors of exp
DEALLOCATION 396 -> 800 tensors
ALLOCATION 396 -> 1200 tensors of mul
DEALLOCATION 396 -> 800 tensors of mul
at the peak: 1 memory from before the trace
at the peak: 1 tensors of exp
at the peak: 1 tensors of mul
ops: Exp Mul
";

#[test]
#[ignore = "needs xprof: `cargo xtask test TensorBoard` installs and runs it"]
fn xprof_shows_the_memory_of_a_trace() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    // The device has memory of its own, which no other test uses.
    let device = gradlet::cpu().limited(4096);
    let x = Tensor::full(&device, 1.0f32, &[99])?;
    let trace = trace_on(&device, Options { graph: false, profiler: true });
    let y = Tensor::full(trace.device(), 2.0f32, &[99])?;
    let z = y.exp()?;
    drop(y);
    drop(z.mul(&x)?);
    let profile = trace.timeline()?.write(folder.path(), "run").unwrap();
    assert_eq!(python(SCRIPT, &[profile.to_str().unwrap()]), WANTED);
    Ok(())
}
