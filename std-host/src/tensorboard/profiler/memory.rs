//! Changes of a device's memory, with the names that TensorBoard's tool Memory Profile reads.

use gradlet_core::device::{MemoryChange, MemoryInfo};

/// Change of a device's memory: an allocation, or its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Time of the change, in nanoseconds of Unix time. The events of a device have ascending times.
    pub time_ns: u64,
    /// True if memory was allocated, false if it was freed.
    pub allocated: bool,
    /// Bytes that the program needs.
    pub requested: u64,
    /// Bytes that the device counts: those that the program needs, in whole blocks.
    pub bytes: u64,
    /// Address of the memory. It identifies an allocation until its memory is freed.
    pub address: u64,
    /// Holder of the memory, such as `tensors of matmul`. Empty if the memory was freed.
    pub holder: String,
    /// Memory of the device after the change.
    pub memory: MemoryInfo,
}

impl MemoryEvent {
    pub(super) fn new(time_ns: u64, change: &MemoryChange<'_>) -> MemoryEvent {
        let &MemoryChange { allocated, requested, bytes, address, holder, memory } = change;
        MemoryEvent { time_ns, allocated, requested, bytes, address, holder: holder.into(), memory }
    }

    /// Creates an event that stands for all memory that was in use when a trace began.
    pub(super) fn before(time_ns: u64, memory: MemoryInfo) -> MemoryEvent {
        let (requested, bytes) = (memory.current, memory.current);
        MemoryEvent { time_ns, allocated: true, requested, bytes, address: 0, holder: "memory from before the trace".into(), memory }
    }

    /// Returns the name by which TensorBoard recognizes the event.
    pub(super) fn name(&self) -> &'static str {
        if self.allocated { "MemoryAllocation" } else { "MemoryDeallocation" }
    }

    /// Returns the numbers, by the names that TensorBoard reads.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let MemoryInfo { current, peak, limit, .. } = self.memory;
        let free = limit.map(|limit| ("bytes_available", limit.saturating_sub(current)));
        let numbers = [
            ("requested_bytes", self.requested),
            ("allocation_bytes", self.bytes),
            ("addr", self.address),
            ("bytes_allocated", current),
            ("peak_bytes_in_use", peak),
        ];
        numbers.into_iter().chain(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::proto::x_event::Data;
    use crate::formats::proto::x_stat::Value;
    use crate::tensorboard::profiler::{Options, Plane, Timeline, trace_on};
    use gradlet_core::{Device, Eager, Function, Result, Scope, Tensor};

    const PROFILER: Options = Options { graph: false, profiler: true };
    const BEFORE: &str = "memory from before the trace";

    /// Returns a CPU with memory of its own, which no other test uses.
    fn device() -> Device {
        crate::cpu().limited(4096)
    }

    fn told(events: &[MemoryEvent]) -> Vec<(bool, u64, u64, &str)> {
        events.iter().map(|event| (event.allocated, event.requested, event.memory.current, event.holder.as_str())).collect()
    }

    #[test]
    fn a_trace_has_each_allocation_and_its_end() -> Result<()> {
        let trace = trace_on(&device(), PROFILER);
        let x = Tensor::full(trace.device(), 1.0f32, &[99])?;
        let y = x.exp()?;
        drop(x);
        drop(y.neg()?);
        let timeline = trace.timeline()?;
        drop(y);
        let events = &timeline.planes[0].memory;
        let wanted = [
            (true, 396, 400, "tensors"),
            (true, 396, 800, "tensors of exp"),
            (false, 396, 400, ""),
            (true, 396, 800, "tensors of neg"),
            (false, 396, 400, ""),
        ];
        assert_eq!(told(events), wanted);
        assert!(events.iter().all(|event| event.bytes == 400 && event.memory.limit == Some(4096)));
        assert_eq!((events[2].address, events[4].address), (events[0].address, events[3].address));
        assert!(events.is_sorted_by(|one, next| one.time_ns < next.time_ns));

        let space = timeline.xspace();
        let plane = &space.planes[0];
        let line = plane.lines.last().unwrap();
        assert_eq!((plane.name.as_str(), line.name.as_str(), line.timestamp_ns), ("/host:CPU", "memory of CPU:0", 0));
        let names: Vec<&str> = line.events.iter().map(|event| plane.event_metadata[&event.metadata_id].name.as_str()).collect();
        assert_eq!(names, events.iter().map(MemoryEvent::name).collect::<Vec<_>>());
        let stats = |index: usize| {
            let stats = line.events[index].stats.iter();
            stats.map(|stat| (plane.stat_metadata[&stat.metadata_id].name.clone(), stat.value.clone())).collect::<Vec<_>>()
        };
        let wanted = [
            ("allocator_name", Value::StrValue("CPU:0".into())),
            ("tf_op", Value::StrValue("tensors of exp".into())),
            ("requested_bytes", Value::Int64Value(396)),
            ("allocation_bytes", Value::Int64Value(400)),
            ("bytes_allocated", Value::Int64Value(800)),
            ("peak_bytes_in_use", Value::Int64Value(800)),
            ("bytes_available", Value::Int64Value(3296)),
        ];
        for (name, value) in wanted {
            assert!(stats(1).contains(&(name.to_string(), Some(value))), "{name}: {:?}", stats(1));
        }
        Ok(())
    }

    #[test]
    fn memory_from_before_the_trace_comes_first() -> Result<()> {
        let device = device();
        let x = Tensor::full(&device, 1.0f32, &[100])?;
        let trace = trace_on(&device, PROFILER);
        drop(Tensor::full(trace.device(), 1.0f32, &[4])?);
        // The device without the trace frees this memory.
        drop(x);
        let timeline = trace.timeline()?;
        assert_eq!(told(&timeline.planes[0].memory), [(true, 400, 400, BEFORE), (true, 16, 416, "tensors"), (false, 16, 400, "")]);
        let trace = trace_on(&device, Options::default());
        drop(Tensor::full(trace.device(), 1.0f32, &[4])?);
        assert!(trace.timeline()?.planes[0].memory.is_empty());
        Ok(())
    }

    #[test]
    fn a_function_holds_its_memory() -> Result<()> {
        let trace = trace_on(&device(), PROFILER);
        let scope = Eager::new(trace.device());
        let square = Function::new(|_: &dyn Scope, x: Tensor| x.mul(&x)).named("square");
        for value in [1.0f32, 2.0, 3.0] {
            square.call(&scope, Tensor::full(&scope.device(), value, &[100])?)?;
        }
        let timeline = trace.timeline()?;
        let events = timeline.planes[0].memory.iter();
        assert_eq!(events.filter(|event| event.holder == "function square" && event.requested == 400).count(), 1);
        Ok(())
    }

    /// The tool reads only the plane of the host.
    #[test]
    fn memory_of_any_device_is_in_the_plane_of_the_host() {
        let event = MemoryEvent { time_ns: 1_700_000_000_000_002_000, allocated: true, ..MemoryEvent::default() };
        let earlier = MemoryEvent { time_ns: 1_700_000_000_000_000_000, ..event.clone() };
        let plane = |name: &str, event: MemoryEvent| Plane { name: name.into(), memory: vec![event], ..Plane::default() };
        let planes = vec![plane("/device:GPU:0", event), plane("/device:GPU:1", earlier)];
        let space = Timeline { host: "desk".into(), planes }.xspace();
        let names: Vec<&str> = space.planes.iter().map(|plane| plane.name.as_str()).collect();
        assert_eq!(names, ["/device:GPU:0", "/host:CPU", "/device:GPU:1", "Task Environment"]);
        let lines = &space.planes[1].lines;
        assert_eq!(lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(), ["memory of GPU:0", "memory of GPU:1"]);
        assert!(lines[0].id != lines[1].id);
        let offset = |line: usize| lines[line].events[0].data;
        assert_eq!((offset(0), offset(1)), (Some(Data::OffsetPs(2_000_000)), Some(Data::OffsetPs(0))));
    }
}
