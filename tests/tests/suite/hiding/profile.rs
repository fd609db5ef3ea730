//! Profiles of a device with its own clock: its stream has each launch and each transfer, with the device's time.

use gradlet::config::{Context, Environment, Physical};
use gradlet::profiler::{Options, Plane, Span, Stat, Timeline, trace_on};
use gradlet_core::{Device, Eager, Function, Result, Scope, Tensor, Variable};
use gradlet_tests::hiding::{BYTE, Hiding, HidingGpu, LAUNCH};
use std::sync::Arc;

const PROFILER: Options = Options { graph: false, profiler: true };
/// Number of elements of a tensor, and its bytes.
const ELEMENTS: usize = 250;
const BYTES: u64 = 4 * ELEMENTS as u64;

/// Returns the profile of `work` on `device`.
fn profile(device: &Device, work: impl FnOnce(&Eager) -> Result<()>) -> Result<Timeline> {
    let trace = trace_on(device, PROFILER);
    work(&Eager::new(trace.device()))?;
    trace.timeline()
}

fn plane<'t>(timeline: &'t Timeline, name: &str) -> &'t Plane {
    timeline.planes.iter().find(|plane| plane.name == name).unwrap_or_else(|| panic!("no plane {name}"))
}

/// Returns the spans of a device's stream. They must not overlap.
fn stream<'t>(timeline: &'t Timeline, name: &str) -> &'t [Span] {
    let [line] = plane(timeline, name).lines.as_slice() else { panic!("{name} has several streams") };
    assert_eq!(line.name, "Stream");
    assert!(line.spans.is_sorted_by(|one, next| one.start_ps + one.duration_ps <= next.start_ps), "{:?}", line.spans);
    &line.spans
}

/// Returns the names of spans, and their durations in nanoseconds.
fn times(spans: &[Span]) -> Vec<(&str, u64)> {
    spans.iter().map(|span| (span.name.as_str(), span.duration_ps / 1000)).collect()
}

fn stat<'s>(span: &'s Span, name: &str) -> Option<&'s Stat> {
    span.stats.iter().find(|(other, _)| *other == name).map(|(_, stat)| stat)
}

fn numbers(device: &Device) -> Result<Tensor> {
    Tensor::new(device, &[0.5f32; ELEMENTS], &[ELEMENTS as u32])
}

#[test]
fn eager_work_has_the_times_of_the_device() -> Result<()> {
    let hiding = Hiding::clocked("GPU:0", true);
    let timeline = profile(&hiding.device, |scope| {
        let x = numbers(&scope.device())?;
        let y = Tensor::full(&scope.device(), 2.0f32, x.dims())?;
        let variable = Variable::new(scope, "v", &x.mul(&y)?)?;
        // Two own the value, so it is copied.
        let _before = scope.read(&variable)?;
        scope.assign_add(&variable, &y)?;
        let (all, none) = (scope.read(&variable)?, Tensor::new(&scope.device(), &[0.0f32; 0], &[0])?);
        assert_eq!((all.to_vec::<f32>()?[0], none.to_vec::<f32>()?.len()), (3.0, 0));
        Ok(())
    })?;
    let spans = stream(&timeline, "/device:GPU:0");
    let (moved, launched) = (BYTES * BYTE, LAUNCH);
    let wanted = [
        ("MemcpyHToD", moved),
        ("Memset", moved),
        ("Mul:Mul", launched),
        ("MemcpyDToD", moved),
        ("AddV2:AddV2", launched),
        ("MemcpyDToH", moved),
    ];
    assert_eq!(times(spans), wanted);
    for span in spans {
        let is_op = span.name.contains(':');
        assert_eq!(stat(span, "tf_op"), is_op.then(|| Stat::Text(span.name.clone())).as_ref());
        let details = (!is_op).then(|| Stat::Text(format!("num_bytes:{BYTES}")));
        assert_eq!(stat(span, if span.name == "Memset" { "Memset_details" } else { "memcpy_details" }), details.as_ref());
    }
    Ok(())
}

/// The host's activities are in its own plane. Each of them that the device measured has the number of a span of the device.
#[test]
fn threads_are_in_the_plane_of_the_host() -> Result<()> {
    let hiding = Hiding::clocked("GPU:0", true);
    let timeline = profile(&hiding.device, |scope| numbers(&scope.device())?.exp()?.neg().map(drop))?;
    assert_eq!(timeline.planes.iter().map(|plane| plane.name.as_str()).collect::<Vec<_>>(), ["/host:CPU", "/device:GPU:0"]);
    let spans = &plane(&timeline, "/host:CPU").lines[0].spans;
    let ids = |spans: &[Span]| spans.iter().map(|span| stat(span, "correlation_id").cloned()).collect::<Vec<_>>();
    assert_eq!(spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["MemcpyHToD", "Exp:Exp", "Neg:Neg"]);
    assert_eq!(ids(spans), ids(stream(&timeline, "/device:GPU:0")));
    assert!(ids(spans).is_sorted_by(|one, next| one.is_some() && one != next));
    let memory = &plane(&timeline, "/device:GPU:0").memory;
    assert_eq!(memory.iter().filter(|event| event.allocated).count(), 3);
    assert!(plane(&timeline, "/host:CPU").memory.is_empty());
    Ok(())
}

#[test]
fn compiled_steps_have_the_times_of_the_device() -> Result<()> {
    for prepares in [true, false] {
        let hiding = Hiding::clocked("GPU:0", prepares);
        let function = Function::new(|_: &dyn Scope, x: Tensor| x.exp()?.mul(&x)?.sum(&[], false)?.sqrt()).named("norm");
        let mut counts = None;
        let timeline = profile(&hiding.device, |scope| {
            let x = numbers(&scope.device())?;
            let (result, during) = hiding.during(|| function.call(scope, x));
            counts = Some(during);
            result?.item::<f32>().map(drop)
        })?;
        let spans = stream(&timeline, "/device:GPU:0");
        let [first, steps @ .., last] = spans else { panic!("{spans:?}") };
        assert_eq!(times(&[first.clone(), last.clone()]), [("MemcpyHToD", BYTES * BYTE), ("MemcpyDToH", 4 * BYTE)]);
        assert_eq!(steps.len() as u64, counts.unwrap_or_default().launches, "prepares: {prepares}");
        assert!(steps.iter().all(|step| step.duration_ps == LAUNCH * 1000 && stat(step, "kernel_details").is_some()));
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let wanted: &[&str] = if prepares { &["Sum:Exp_Mul_Sum", "Sqrt:Sqrt"] } else { &["Exp:Exp", "Mul:Mul", "Sum:Sum", "Sqrt:Sqrt"] };
        assert_eq!(names, wanted);
    }
    Ok(())
}

/// A copy from one device to another is a download and an upload, each on the stream of its device.
#[test]
fn each_device_has_its_stream() -> Result<()> {
    let gpus: [Arc<HidingGpu>; 2] = std::array::from_fn(|_| HidingGpu::clocked(1 << 20));
    let context = Context::portable(gpus.map(|gpu| gpu as Arc<dyn Physical>), &Environment::default());
    let timeline = profile(&context.scope()?.device(), |scope| {
        let here = scope.with_device("GPU:0")?;
        let x = numbers(&scope.device())?.exp()?;
        drop(here);
        let _there = scope.with_device("GPU:1")?;
        x.neg().map(drop)
    })?;
    let moved = BYTES * BYTE;
    assert_eq!(times(stream(&timeline, "/device:GPU:0")), [("MemcpyHToD", moved), ("Exp:Exp", LAUNCH), ("MemcpyDToH", moved)]);
    assert_eq!(times(stream(&timeline, "/device:GPU:1")), [("MemcpyHToD", moved), ("Neg:Neg", LAUNCH)]);
    Ok(())
}

#[test]
fn a_device_without_a_clock_has_the_times_of_the_host() -> Result<()> {
    let hiding = Hiding::named("GPU:0", None);
    let timeline = profile(&hiding.device, |scope| numbers(&scope.device())?.exp().map(drop))?;
    let [plane] = timeline.planes.as_slice() else { panic!("{:?}", timeline.planes) };
    assert_eq!((plane.name.as_str(), plane.lines.len(), plane.memory.is_empty()), ("/device:GPU:0", 1, false));
    let names: Vec<&str> = plane.lines[0].spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["MemcpyHToD", "Exp:Exp"]);
    Ok(())
}
