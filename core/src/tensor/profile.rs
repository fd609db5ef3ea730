//! Profiling hooks: reports of what runs, and when it begins and ends. The profiler supplies the clock.

use crate::base::op::OpDef;
use crate::base::shape::TensorType;
use crate::base::sync::{Shared, ThreadSafe};
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

    /// Reports that a function runs, with its graph as traced and as optimized.
    fn function(&self, name: &str, traced: &Graph, optimized: &Graph) {
        let _ = (name, traced, optimized);
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
    /// Work of a function outside its ops.
    Gap(&'static str),
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
