//! Work of streams: kernels, copies, fills, graphs, events.

use super::counts::KernelCounts;
use super::memory::View;
use super::queue::Point;
use super::state::{Emulator, Handle};
use super::status::{Status, Stop};
use crate::cublaslt::Product;
use crate::machine::{self, Fault, FaultKind, Launch, Options};
use crate::nccl::Reduction;
use crate::ptx::Function;
use std::ops::Range;
use std::sync::Arc;

/// Nanoseconds that each work takes.
const START: u64 = 1000;

/// A work.
#[derive(Clone)]
pub(crate) enum Work {
    /// Waits for another stream.
    Wait(Point),
    /// A kernel.
    Kernel(Call),
    /// A copy.
    Copy(Copy),
    /// A fill.
    Fill(Fill),
    /// The nodes of a graph, in an order in which they may run.
    Graph(Arc<Vec<Work>>),
    /// The record of an event.
    Stamp(Handle),
    /// A change of what the program may use.
    Mark(Mark),
    /// An operation of NCCL.
    Collective(Arc<Reduction>),
    /// A product of cuBLASLt.
    Product(Arc<Product>),
}

/// A launch of a kernel, with copies of its parameters.
#[derive(Clone)]
pub(crate) struct Call {
    pub function: Handle,
    pub code: Arc<Function>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    pub parameters: Vec<u8>,
}

/// Where a copy reads.
#[derive(Clone)]
pub(crate) enum Source {
    /// Memory that the device may use.
    Device(u64),
    /// Memory of a device of this number.
    Peer(usize, u64),
    /// Page-locked memory of the host, read when the copy runs.
    Pinned(u64),
    /// Bytes that were copied when the work was submitted.
    Staged(Vec<u8>),
}

/// Where a copy writes.
#[derive(Clone)]
pub(crate) enum Target {
    /// Memory that the device may use.
    Device(u64),
    /// Memory of a device of this number.
    Peer(usize, u64),
    /// Page-locked memory of the host, written when the copy runs.
    Pinned(u64),
    /// Other memory of the host. Its owner waits for the copy.
    Pageable(u64),
}

/// A copy.
#[derive(Clone)]
pub(crate) struct Copy {
    pub from: Source,
    pub to: Target,
    pub bytes: usize,
}

/// A fill with a number of 1, 2 or 4 bytes.
#[derive(Clone)]
pub(crate) struct Fill {
    pub to: u64,
    pub value: Vec<u8>,
    pub count: usize,
}

/// A change of what the program may use.
#[derive(Clone)]
pub(crate) struct Mark {
    pub address: u64,
    pub bytes: usize,
    pub kind: MarkKind,
}

/// How a range changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// The range is as after an allocation.
    Poison,
    /// Nothing may use it.
    Ban,
    /// It may be used, and has what it had.
    Unban,
}

impl Work {
    /// Returns the event that the work records.
    pub(crate) fn event(&self) -> Option<Handle> {
        if let Work::Stamp(event) = self { Some(*event) } else { None }
    }

    /// Returns the addresses that the work surely or probably uses.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        match self {
            Work::Wait(_) | Work::Stamp(_) | Work::Mark(_) => Vec::new(),
            Work::Kernel(call) => call.words().collect(),
            Work::Copy(copy) => copy.addresses().collect(),
            Work::Fill(fill) => vec![fill.to],
            Work::Graph(nodes) => nodes.iter().flat_map(Work::addresses).collect(),
            Work::Collective(reduction) => reduction.addresses(),
            Work::Product(product) => product.addresses(),
        }
    }
}

impl Call {
    /// Returns the words of 64 bits among the parameters.
    fn words(&self) -> impl Iterator<Item = u64> {
        self.parameters.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_le_bytes))
    }
}

impl Copy {
    fn addresses(&self) -> impl Iterator<Item = u64> {
        let from = match self.from {
            Source::Device(address) | Source::Peer(_, address) | Source::Pinned(address) => Some(address),
            Source::Staged(_) => None,
        };
        let to = match self.to {
            Target::Device(address) | Target::Peer(_, address) | Target::Pinned(address) => Some(address),
            Target::Pageable(_) => None,
        };
        from.into_iter().chain(to)
    }
}

impl Fill {
    /// Returns the number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.value.len().saturating_mul(self.count)
    }
}

impl Emulator {
    /// Runs a work of a stream of `device`.
    pub(crate) fn perform(&mut self, device: usize, work: &Work) -> Result<(), Stop> {
        match work {
            Work::Wait(_) => Ok(()),
            Work::Kernel(call) => self.perform_kernel(device, call),
            Work::Copy(copy) => self.perform_copy(device, copy),
            Work::Fill(fill) => self.perform_fill(device, fill),
            Work::Graph(nodes) => nodes.iter().try_for_each(|node| self.perform(device, node)),
            Work::Stamp(event) => {
                self.clock += START;
                if let Some(event) = self.events.get_mut(event) {
                    event.time = self.clock;
                }
                Ok(())
            }
            Work::Collective(reduction) => reduction.perform(self),
            Work::Product(product) => {
                self.clock += START + product.time();
                self.kernels.entry("cublasLt".into()).or_default().launches += 1;
                product.perform(self)
            }
            Work::Mark(mark) => {
                self.perform_mark(mark);
                Ok(())
            }
        }
    }

    fn perform_kernel(&mut self, device: usize, call: &Call) -> Result<(), Stop> {
        if !self.functions.contains_key(&call.function) {
            return Err(Stop::stale(&format!("the module of kernel {} was unloaded before the kernel ran", call.code.name())));
        }
        let launch = Launch {
            function: &call.code,
            grid: call.grid,
            block: call.block,
            dynamic_shared: call.dynamic_shared,
            parameters: &call.parameters,
        };
        let defaults = Options::default();
        let budget = self.configuration.budget.unwrap_or(defaults.budget);
        let most_shared = self.configuration.most_shared();
        let options = Options { budget, global_races: self.configuration.global_races, most_shared };
        let statistics = machine::run_with(&launch, &mut View { memory: &mut self.memory, device }, &options).map_err(stop_of)?;
        self.counts.instructions += statistics.lane_instructions;
        let name = call.code.name();
        if !self.kernels.contains_key(name) {
            self.kernels.insert(name.to_string(), KernelCounts::default());
        }
        if let Some(counts) = self.kernels.get_mut(name) {
            counts.launches += 1;
            counts.flops += statistics.flops;
            counts.loaded += statistics.loaded;
            counts.stored += statistics.stored;
            counts.threads = counts.threads.max(call.block.iter().product());
            counts.dynamic_shared = counts.dynamic_shared.max(call.dynamic_shared);
        }
        self.clock += START + statistics.warp_instructions;
        Ok(())
    }

    fn perform_copy(&mut self, device: usize, copy: &Copy) -> Result<(), Stop> {
        self.clock += START + copy.bytes as u64 / 8;
        let bytes = match &copy.from {
            Source::Device(address) => self.memory.read(device, *address, copy.bytes)?.to_vec(),
            Source::Peer(device, address) => self.memory.read(*device, *address, copy.bytes)?.to_vec(),
            Source::Pinned(pointer) => self.pinned(*pointer, copy.bytes)?.to_vec(),
            Source::Staged(bytes) => bytes.clone(),
        };
        match &copy.to {
            Target::Device(address) => self.memory.write(device, *address, copy.bytes)?.copy_from_slice(&bytes),
            Target::Peer(device, address) => self.memory.write(*device, *address, copy.bytes)?.copy_from_slice(&bytes),
            Target::Pinned(pointer) => self.pinned(*pointer, copy.bytes)?.copy_from_slice(&bytes),
            // SAFETY: the program has named this range as the destination of a copy, and waits for it.
            Target::Pageable(pointer) => unsafe { std::ptr::copy(bytes.as_ptr(), *pointer as *mut u8, copy.bytes) },
        }
        Ok(())
    }

    /// Returns bytes of page-locked memory.
    fn pinned(&mut self, pointer: u64, bytes: usize) -> Result<&mut [u8], Stop> {
        let text = || format!("IllegalAddress: copy of {bytes} bytes at {pointer:#x}: memory of the host that was freed");
        let freed = || Stop::new(Status::ILLEGAL_ADDRESS, text());
        let block = self.memory.find_host(pointer).ok_or_else(freed)?;
        let range = block.range(pointer, bytes).filter(|range: &Range<usize>| !block.is_banned(range.clone()));
        range.map(|range| block.write(range)).ok_or_else(freed)
    }

    fn perform_fill(&mut self, device: usize, fill: &Fill) -> Result<(), Stop> {
        self.clock += START + fill.bytes() as u64 / 8;
        let bytes = self.memory.write(device, fill.to, fill.bytes())?;
        bytes.chunks_exact_mut(fill.value.len()).for_each(|element| element.copy_from_slice(&fill.value));
        Ok(())
    }

    fn perform_mark(&mut self, mark: &Mark) {
        let Some(block) = self.memory.find(mark.address) else { return };
        let Some(range) = block.range(mark.address, mark.bytes) else { return };
        match mark.kind {
            MarkKind::Poison => block.poison(range),
            MarkKind::Ban => block.ban(range, true),
            MarkKind::Unban => block.ban(range, false),
        }
    }
}

/// Turns a fault of the machine into what stops a stream.
fn stop_of(fault: Fault) -> Stop {
    let status = match fault.kind {
        FaultKind::IllegalAddress | FaultKind::SharedOutOfBounds | FaultKind::LocalOutOfBounds => Status::ILLEGAL_ADDRESS,
        FaultKind::Misaligned => Status::MISALIGNED_ADDRESS,
        FaultKind::Timeout => Status::LAUNCH_TIMEOUT,
        _ => Status::LAUNCH_FAILED,
    };
    Stop::new(status, fault.to_string())
}
