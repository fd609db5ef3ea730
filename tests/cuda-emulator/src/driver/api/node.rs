//! Nodes of graphs.

use super::launch::KernelNode;
use crate::driver::state::{Emulator, Handle, call_on_device, give};
use crate::driver::status::{Outcome, Status, Stop};
use crate::driver::work::{Copy, Source, Target, Work};

/// A node of a graph.
pub(crate) struct Node {
    /// Index in its graph.
    pub index: usize,
    /// The graph.
    pub graph: Handle,
    /// Indices of the nodes that run before it.
    pub after: Vec<usize>,
    /// Work of the node.
    pub work: Work,
}

/// One end of a copy node.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyEnd {
    /// First byte of each row.
    pub x_in_bytes: usize,
    /// First row.
    pub y: usize,
    /// First layer.
    pub z: usize,
    /// Level of detail.
    pub lod: usize,
    /// 1 for the host's memory, 2 for a device's.
    pub memory_type: u32,
    /// Address in the host's memory.
    pub host: Handle,
    /// Address in a device's memory.
    pub device: u64,
    /// An array.
    pub array: Handle,
    /// Must be 0.
    pub reserved: Handle,
    /// Bytes of a row.
    pub pitch: usize,
    /// Rows of a layer.
    pub height: usize,
}

/// A copy node: the driver's `CUDA_MEMCPY3D`. The emulator has only copies of one row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyNode {
    /// Where it reads.
    pub source: CopyEnd,
    /// Where it writes.
    pub destination: CopyEnd,
    /// Bytes of a row.
    pub width_in_bytes: usize,
    /// Rows.
    pub height: usize,
    /// Layers.
    pub depth: usize,
}

/// A fill node: the driver's `CUDA_MEMSET_NODE_PARAMS`. The emulator has only fills of one row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FillNode {
    /// The address.
    pub destination: u64,
    /// Bytes of a row.
    pub pitch: usize,
    /// The number.
    pub value: u32,
    /// Bytes of the number: 1, 2 or 4.
    pub element_size: u32,
    /// Numbers of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// Adds a kernel to a graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode(
    node: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
    parameters: *const KernelNode,
) -> Status {
    call_on_device(|emulator, device| {
        // SAFETY: the caller gives a description, or null.
        let kernel = unsafe { parameters.as_ref() }.ok_or(Status::INVALID_VALUE)?;
        // SAFETY: the caller gives the function's parameters.
        let work = Work::Kernel(unsafe { emulator.kernel(device, kernel) }?);
        // SAFETY: the caller gives `count` nodes.
        give(node, unsafe { emulator.add_node(device, graph, dependencies, count, work) }?)
    })
}

/// Adds a copy to a graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemcpyNode(
    node: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
    parameters: *const CopyNode,
    context: Handle,
) -> Status {
    call_on_device(|emulator, device| {
        // SAFETY: the caller gives a description, or null.
        let copy = unsafe { parameters.as_ref() }.ok_or(Status::INVALID_VALUE)?;
        let work = Work::Copy(emulator.copy_node(device, context, copy)?);
        // SAFETY: the caller gives `count` nodes.
        give(node, unsafe { emulator.add_node(device, graph, dependencies, count, work) }?)
    })
}

/// Adds an event to a graph. Each launch of the graph records it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddEventRecordNode(
    node: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
    event: Handle,
) -> Status {
    call_on_device(|emulator, device| {
        emulator.events.get(&event).filter(|event| event.device == device).ok_or(Status::INVALID_HANDLE)?;
        // SAFETY: the caller gives `count` nodes.
        give(node, unsafe { emulator.add_node(device, graph, dependencies, count, Work::Stamp(event)) }?)
    })
}

/// Adds a fill to a graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemsetNode(
    node: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
    parameters: *const FillNode,
    context: Handle,
) -> Status {
    call_on_device(|emulator, device| {
        // SAFETY: the caller gives a description, or null.
        let fill = unsafe { parameters.as_ref() }.ok_or(Status::INVALID_VALUE)?;
        if emulator.device_of(context) != Some(device) || fill.height != 1 || fill.width == 0 || ![1, 2, 4].contains(&fill.element_size) {
            return Err(Status::INVALID_VALUE);
        }
        let value = &fill.value.to_le_bytes()[..fill.element_size as usize];
        let work = Work::Fill(emulator.fill(device, fill.destination, value, fill.width)?);
        // SAFETY: the caller gives `count` nodes.
        give(node, unsafe { emulator.add_node(device, graph, dependencies, count, work) }?)
    })
}

impl Emulator {
    /// Adds a node to a graph.
    ///
    /// # Safety
    ///
    /// There are `count` dependencies.
    unsafe fn add_node(&mut self, device: usize, graph: Handle, dependencies: *const Handle, count: usize, work: Work) -> Outcome<Handle> {
        let before = match (count, dependencies.is_null()) {
            (0, _) => &[],
            (_, true) => return Err(Status::INVALID_VALUE),
            // SAFETY: the caller guarantees it.
            (_, false) => unsafe { std::slice::from_raw_parts(dependencies, count) },
        };
        let index = |node: &Handle| self.nodes.get(node).filter(|node| node.graph == graph).map(|node| node.index);
        let after: Option<Vec<usize>> = before.iter().map(index).collect();
        let after = after.ok_or(Status::INVALID_VALUE)?;
        let handle = self.handle();
        let graph_nodes = self.graphs.get_mut(&graph).filter(|graph| graph.device == device).map(|graph| &mut graph.nodes);
        let nodes = graph_nodes.ok_or(Status::INVALID_HANDLE)?;
        self.nodes.insert(handle, Node { index: nodes.len(), graph, after, work });
        nodes.push(handle);
        Ok(handle)
    }

    /// Checks a copy of a graph. The host's memory must be page-locked, because it is used when the graph runs.
    pub(crate) fn copy_node(&mut self, device: usize, context: Handle, copy: &CopyNode) -> Outcome<Copy> {
        let is_plain = |end: &CopyEnd| [end.x_in_bytes, end.y, end.z, end.lod, end.array, end.reserved].iter().all(|&value| value == 0);
        let bytes = copy.width_in_bytes;
        let is_row = bytes > 0 && copy.height == 1 && copy.depth == 1 && is_plain(&copy.source) && is_plain(&copy.destination);
        if !is_row || self.device_of(context) != Some(device) {
            return Err(Status::INVALID_VALUE);
        }
        match (copy.source.memory_type, copy.destination.memory_type) {
            (1, 2) => {
                self.check_pinned(device, copy.source.host, bytes)?;
                self.check(device, copy.destination.device, bytes)?;
                let (from, to) = (Source::Pinned(copy.source.host as u64), Target::Device(copy.destination.device));
                Ok(Copy { from, to, bytes })
            }
            (2, 1) => {
                self.check(device, copy.source.device, bytes)?;
                self.check_pinned(device, copy.destination.host, bytes)?;
                let (from, to) = (Source::Device(copy.source.device), Target::Pinned(copy.destination.host as u64));
                Ok(Copy { from, to, bytes })
            }
            (2, 2) => self.device_copy(device, copy.source.device, copy.destination.device, bytes),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    fn check_pinned(&mut self, device: usize, pointer: Handle, bytes: usize) -> Outcome {
        if self.is_pinned(device, pointer, bytes)? {
            return Ok(());
        }
        let text = format!("InvalidValue: a graph copies {bytes} bytes at {pointer:#x} of the host: they are not page-locked");
        Err(self.refuse(Stop::new(Status::INVALID_VALUE, text)))
    }
}
