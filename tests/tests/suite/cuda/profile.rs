//! The profile of a GPU: its stream has kernels and copies, with times by the GPU's events.

use gradlet::profiler::{Options, trace_on};
use gradlet_core::{Eager, Function, Result, Scope, Tensor};
use gradlet_tests::gpu::device;

#[test]
fn kernels_and_copies_have_the_times_of_events() -> Result<()> {
    let trace = trace_on(&device()?, Options { graph: false, profiler: true });
    let scope = Eager::new(trace.device());
    let norm = Function::new(|_: &dyn Scope, x: Tensor| x.exp()?.mul(&x)?.sum(&[], false)).named("norm");
    let x = Tensor::new(&scope.device(), &[1.0f32; 1000], &[1000])?;
    let y = Tensor::full(&scope.device(), 0.5f32, &[1000])?;
    norm.call(&scope, x.mul(&y)?)?.item::<f32>()?;
    let timeline = trace.timeline()?;
    assert_eq!(timeline.planes.iter().map(|plane| plane.name.as_str()).collect::<Vec<_>>(), ["/host:CPU", "/device:GPU:0"]);
    let spans = &timeline.planes[1].lines[0].spans;
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["MemcpyHToD", "Memset", "Mul:Mul", "Mul:Exp_Mul", "Sum:Sum", "MemcpyDToH"]);
    assert!(spans.iter().all(|span| span.duration_ps > 0), "{spans:?}");
    assert!(spans.is_sorted_by(|one, next| one.start_ps + one.duration_ps <= next.start_ps), "{spans:?}");
    assert!(!timeline.planes[1].memory.is_empty());
    Ok(())
}
