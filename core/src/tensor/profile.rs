//! Telling what runs, and when it begins and ends. The one who is told has the clock.

use crate::base::op::OpDef;
use crate::base::shape::TensorType;
use crate::base::sync::{Shared, ThreadSafe};
use crate::tensor::graph::Graph;
use alloc::vec::Vec;

/// Who is told what a device runs: see [`Device::profiling`](crate::Device::profiling).
pub trait Profiler: ThreadSafe {
    /// Something begins, within all that began before on this thread and is not over.
    fn begin(&self, activity: &Activity<'_>);

    /// What began last on this thread, and is not over, is over.
    fn end(&self);

    /// Whether there is anything to be told: what is not listened to any more costs as little as what never was.
    fn is_on(&self) -> bool {
        true
    }

    /// A function runs: its graph as it was traced, and as it was optimised.
    fn function(&self, name: &str, traced: &Graph, optimized: &Graph) {
        let _ = (name, traced, optimized);
    }
}

/// What begins.
#[derive(Clone, Copy)]
pub enum Activity<'a> {
    /// A call of a compiled function.
    Function(&'a str),
    /// A layer, or another part of a program that runs op by op.
    Scope(&'a str),
    /// An op, or several that run together.
    Ops(&'a Ops),
    /// What a function does beside its ops.
    Gap(&'static str),
}

/// Ops that run together.
pub struct Ops {
    /// The ops. A branch or a loop is one; what it runs begins within it.
    pub nodes: Vec<NamedOp>,
    /// The bytes of all that is read, once each.
    pub read: u64,
    /// The bytes of all that is written.
    pub written: u64,
}

/// An op of a graph, or one that is computed at once.
#[derive(Clone)]
pub struct NamedOp {
    /// The node's name, such as `sequential/dense/MatMul`, if it has one.
    pub name: Option<Shared<str>>,
    /// The op.
    pub op: &'static OpDef,
    /// The type of its first output, if it has one.
    pub output: Option<TensorType>,
}

/// What `work` gives. `profiler`, if there is one, is told that it is `activity`.
#[inline(always)]
pub(crate) fn during<R>(profiler: Option<&dyn Profiler>, activity: Activity<'_>, work: impl FnOnce() -> R) -> R {
    let Some(profiler) = profiler else { return work() };
    profiler.begin(&activity);
    let result = work();
    profiler.end();
    result
}
