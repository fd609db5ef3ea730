//! Graphs.

use super::launch::KernelNode;
use super::node::CopyNode;
use crate::driver::queue::Point;
use crate::driver::state::{Emulator, Handle, call_on_device, give};
use crate::driver::status::{Outcome, Status};
use crate::driver::work::Work;
use std::collections::BinaryHeap;
use std::mem::discriminant;
use std::sync::Arc;

/// A graph.
pub(crate) struct Graph {
    pub device: usize,
    /// Its nodes, in the order in which they were added.
    pub nodes: Vec<Handle>,
}

/// An executable graph.
pub(crate) struct Executable {
    pub device: usize,
    /// The nodes, in the order in which they run.
    nodes: Vec<Handle>,
    /// Work of the nodes. A launch shares it.
    works: Arc<Vec<Work>>,
    /// The last launch.
    last: Option<Point>,
}

/// Creates a graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(graph: *mut Handle, flags: u32) -> Status {
    call_on_device(|emulator, device| {
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let handle = emulator.handle();
        emulator.graphs.insert(handle, Graph { device, nodes: Vec::new() });
        give(graph, handle)
    })
}

/// Makes an executable graph. It does not change when the graph changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, flags: u64) -> Status {
    call_on_device(|emulator, device| {
        let found = emulator.graphs.get(&graph).filter(|graph| graph.device == device).ok_or(Status::INVALID_HANDLE)?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let nodes = emulator.order(&found.nodes);
        let works: Vec<Work> = nodes.iter().map(|node| emulator.nodes[node].work.clone()).collect();
        emulator.check_functions(&works)?;
        let handle = emulator.handle();
        emulator.executables.insert(handle, Executable { device, nodes, works: Arc::new(works), last: None });
        give(executable, handle)
    })
}

/// Changes a kernel of an executable graph, for later launches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecKernelNodeSetParams(executable: Handle, node: Handle, parameters: *const KernelNode) -> Status {
    call_on_device(|emulator, device| {
        // SAFETY: the caller gives a description, or null.
        let kernel = unsafe { parameters.as_ref() }.ok_or(Status::INVALID_VALUE)?;
        // SAFETY: the caller gives the function's parameters.
        let work = Work::Kernel(unsafe { emulator.kernel(device, kernel) }?);
        emulator.set_node(device, executable, node, work)
    })
}

/// Changes a copy of an executable graph, for later launches. Where it reads and writes may change, but not the kinds of memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecMemcpyNodeSetParams(
    executable: Handle,
    node: Handle,
    parameters: *const CopyNode,
    context: Handle,
) -> Status {
    call_on_device(|emulator, device| {
        // SAFETY: the caller gives a description, or null.
        let copy = unsafe { parameters.as_ref() }.ok_or(Status::INVALID_VALUE)?;
        let work = Work::Copy(emulator.copy_node(device, context, copy)?);
        emulator.set_node(device, executable, node, work)
    })
}

/// Launches an executable graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(executable: Handle, stream: Handle) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        let found = emulator.executables.get(&executable).filter(|found| found.device == device).ok_or(Status::INVALID_HANDLE)?;
        let (works, last) = (found.works.clone(), found.last);
        emulator.check_functions(&works)?;
        emulator.fail_launch(device)?;
        let kernels = works.iter().filter(|work| matches!(work, Work::Kernel(_))).count();
        emulator.counts.graph_launches += 1;
        emulator.counts.graph_kernel_nodes += kernels as u64;
        let events: Vec<Handle> = works.iter().filter_map(Work::event).collect();
        emulator.counts.graph_copies += (works.len() - kernels - events.len()) as u64;
        // Two launches of the same graph never overlap.
        if let Some(last) = last.filter(|&last| !emulator.is_complete(last)) {
            emulator.submit(stream, Work::Wait(last))?;
        }
        let point = emulator.submit(stream, Work::Graph(works))?;
        // The whole graph runs at once, so the events happen at its end.
        emulator.events.iter_mut().filter(|(handle, _)| events.contains(handle)).for_each(|(_, event)| event.point = Some(point));
        if let Some(found) = emulator.executables.get_mut(&executable) {
            found.last = Some(point);
        }
        Ok(())
    })
}

/// Destroys an executable graph. Its launches still run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(executable: Handle) -> Status {
    call_on_device(|emulator, _| emulator.executables.remove(&executable).map(drop).ok_or(Status::INVALID_HANDLE))
}

/// Destroys a graph and its nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: Handle) -> Status {
    call_on_device(|emulator, _| {
        let graph = emulator.graphs.remove(&graph).ok_or(Status::INVALID_HANDLE)?;
        emulator.nodes.retain(|node, _| !graph.nodes.contains(node));
        Ok(())
    })
}

impl Emulator {
    /// Orders nodes so that each one runs after those that it depends on, and as late a node as possible runs first. A dependency that
    /// the program forgot thus shows.
    fn order(&self, nodes: &[Handle]) -> Vec<Handle> {
        let mut open: Vec<usize> = nodes.iter().map(|node| self.nodes[node].after.len()).collect();
        let mut followers = vec![Vec::new(); nodes.len()];
        for node in nodes.iter().map(|node| &self.nodes[node]) {
            node.after.iter().for_each(|&before| followers[before].push(node.index));
        }
        let mut ready: BinaryHeap<usize> = (0..nodes.len()).filter(|&index| open[index] == 0).collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(index) = ready.pop() {
            order.push(nodes[index]);
            for &follower in &followers[index] {
                open[follower] -= 1;
                if open[follower] == 0 {
                    ready.push(follower);
                }
            }
        }
        order
    }

    /// Checks that the functions of a graph are still loaded.
    fn check_functions(&self, works: &[Work]) -> Outcome {
        let is_loaded = |work: &Work| match work {
            Work::Kernel(call) => self.functions.contains_key(&call.function),
            _ => true,
        };
        if works.iter().all(is_loaded) { Ok(()) } else { Err(Status::INVALID_HANDLE) }
    }

    fn set_node(&mut self, device: usize, executable: Handle, node: Handle, work: Work) -> Outcome {
        if !self.nodes.contains_key(&node) {
            return Err(Status::INVALID_HANDLE);
        }
        let found = self.executables.get_mut(&executable).filter(|found| found.device == device).ok_or(Status::INVALID_HANDLE)?;
        let index = found.nodes.iter().position(|&known| known == node).ok_or(Status::INVALID_VALUE)?;
        if !is_same_kind(&found.works[index], &work) {
            return Err(Status::INVALID_VALUE);
        }
        Arc::make_mut(&mut found.works)[index] = work;
        Ok(())
    }
}

/// True if a node may be changed from one work to the other.
fn is_same_kind(before: &Work, after: &Work) -> bool {
    match (before, after) {
        (Work::Kernel(_), Work::Kernel(_)) => true,
        (Work::Copy(before), Work::Copy(after)) => {
            discriminant(&before.from) == discriminant(&after.from) && discriminant(&before.to) == discriminant(&after.to)
        }
        _ => false,
    }
}
