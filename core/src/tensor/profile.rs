//! Profiling hooks: reports of what runs, when it begins and ends, and of changes of memory. The profiler supplies the clock. A device with
//! a clock of its own measures its work itself.

use crate::base::op::OpDef;
use crate::base::shape::TensorType;
use crate::base::sync::{Shared, ThreadSafe};
use crate::tensor::device::{Device, MemoryInfo};
use crate::tensor::graph::Graph;
use alloc::vec::Vec;

/// Receiver of reports about what a device runs: see [`Device::profiling`](crate::Device::profiling).
pub trait Profiler: ThreadSafe {
    /// Reports that an activity begins, nested in the open activities of this thread.
    fn begin(&self, activity: &Activity<'_>);

    /// Ends the innermost open activity of this thread.
    fn end(&self);

    /// True if the profiler wants reports. A profiler that is off costs as little as none.
    fn is_on(&self) -> bool {
        true
    }

    /// Reports the time that the innermost open activity of this thread took on `device`, by the device's own clock: see
    /// [`Remote::timed`](crate::device::Remote::timed).
    fn computed(&self, device: &Device, nanoseconds: u64) {
        let _ = (device, nanoseconds);
    }

    /// Reports that a function runs, with its graph as traced and as optimized.
    fn function(&self, name: &str, traced: &Graph, optimized: &Graph) {
        let _ = (name, traced, optimized);
    }

    /// Reports that the profiled device allocated memory, or frees memory that it allocated. The same device without the profiler reports
    /// nothing. The caller may hold locks, so this method must not use tensors or variables.
    fn memory(&self, change: &MemoryChange<'_>) {
        let _ = change;
    }
}

/// Activity that a profiler receives.
#[derive(Clone, Copy)]
pub enum Activity<'a> {
    /// Call of a compiled function.
    Function(&'a str),
    /// Layer, or another named scope of a program that runs op by op.
    Scope(&'a str),
    /// One op, or several fused ops.
    Ops(&'a Ops),
    /// Copy of a tensor between devices, which an op or a function needs.
    Copy(&'a Copied<'a>),
    /// Transfer of a number of bytes from or to memory that the host cannot address. CPUs have none.
    Transfer(Transfer, u64),
    /// Work of a function outside its ops.
    Gap(&'static str),
}

/// Kind of a transfer of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Copy from the host to the device.
    Upload,
    /// Copy from the device to the host.
    Download,
    /// Copy within the device's memory.
    Copy,
    /// Repetitions of one value, written to the device's memory.
    Fill,
}

/// Copy of a tensor between devices.
pub struct Copied<'a> {
    /// Element type and shape.
    pub tensor_type: TensorType,
    /// The device that has the tensor.
    pub from: &'a Device,
    /// The device that gets the copy.
    pub to: &'a Device,
}

/// Change of a device's memory, which a profiler receives.
///
/// ```
/// use gradlet_core::device::{Activity, MemoryChange, Profiler};
/// use gradlet_core::{Tensor, ops};
/// use std::sync::{Arc, Mutex};
/// #[derive(Default)]
/// struct Levels(Mutex<Vec<u64>>);
/// impl Profiler for Levels {
///     fn begin(&self, _: &Activity<'_>) {}
///     fn end(&self) {}
///     fn memory(&self, change: &MemoryChange<'_>) {
///         self.0.lock().unwrap().push(change.memory.current);
///     }
/// }
/// let levels = Arc::new(Levels::default());
/// let x = Tensor::full(&ops::portable_cpu().profiling(levels.clone()), 1.0f32, &[100])?;
/// drop(x.neg()?);
/// drop(x);
/// assert_eq!(*levels.0.lock().unwrap(), [400, 800, 400, 0]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MemoryChange<'a> {
    /// True if memory was allocated, false if it is freed.
    pub allocated: bool,
    /// Bytes that the program needs.
    pub requested: u64,
    /// Bytes that the device counts: those that the program needs, in whole blocks.
    pub bytes: u64,
    /// Address of the memory. It identifies an allocation until its memory is freed.
    pub address: u64,
    /// Holder at the time of the allocation, in the words of [`OutOfMemory`](crate::error::OutOfMemory), such as `tensors of matmul`.
    /// Empty if the memory is freed.
    pub holder: &'a str,
    /// Memory of the device after the change.
    pub memory: MemoryInfo,
}

/// Ops that run together.
pub struct Ops {
    /// The ops. A branch or a loop counts as one. The ops in its bodies are nested activities.
    pub nodes: Vec<NamedOp>,
    /// Bytes of all tensors read, each counted once.
    pub read: u64,
    /// Bytes of all tensors written.
    pub written: u64,
}

/// Op of a graph, or op that is computed eagerly.
#[derive(Clone)]
pub struct NamedOp {
    /// Name of the node, such as `sequential/dense/MatMul`, if it has one.
    pub name: Option<Shared<str>>,
    /// The op.
    pub op: &'static OpDef,
    /// Type of the first output, if there is one.
    pub output: Option<TensorType>,
}

/// Calls `work` and returns its result. Reports the call as `activity` to `profiler`, if there is one.
#[inline(always)]
pub(crate) fn during<R>(profiler: Option<&dyn Profiler>, activity: Activity<'_>, work: impl FnOnce() -> R) -> R {
    let Some(profiler) = profiler else { return work() };
    profiler.begin(&activity);
    let result = work();
    profiler.end();
    result
}

/// The first of two profilers that is on.
pub(crate) struct Either {
    pub(crate) first: Shared<dyn Profiler>,
    pub(crate) second: Shared<dyn Profiler>,
}

impl Either {
    fn chosen(&self) -> &dyn Profiler {
        if self.first.is_on() { &*self.first } else { &*self.second }
    }
}

impl Profiler for Either {
    fn begin(&self, activity: &Activity<'_>) {
        self.chosen().begin(activity);
    }
    fn end(&self) {
        self.chosen().end();
    }
    fn is_on(&self) -> bool {
        self.chosen().is_on()
    }
    fn computed(&self, device: &Device, nanoseconds: u64) {
        self.chosen().computed(device, nanoseconds);
    }
    fn function(&self, name: &str, traced: &Graph, optimized: &Graph) {
        self.chosen().function(name, traced, optimized);
    }
    fn memory(&self, change: &MemoryChange<'_>) {
        self.chosen().memory(change);
    }
}
