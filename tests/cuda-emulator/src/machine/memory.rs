//! Device memory as the machine sees it, and the faults that stop a launch.

use std::fmt;

/// The generic addresses of shared memory begin here. Device memory lies below.
pub const SHARED_WINDOW: u64 = 1 << 56;
/// The generic addresses of local memory begin here.
pub const LOCAL_WINDOW: u64 = 2 << 56;

/// Use of device memory by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A load of memory that no thread of the launch may write: `ld.const`, `ld.global.nc`.
    ReadOnly,
    /// A store.
    Write,
    /// An atomic load and store.
    Atomic,
}

/// A range of device memory that lies within one allocation.
pub struct Region<'m> {
    /// The bytes of the range.
    pub bytes: &'m mut [u8],
    /// A flag per byte of the range, not zero if the byte has been written, if the memory keeps such flags.
    ///
    /// The machine sets the flags of what it stores and refuses to load a byte whose flag is zero.
    pub written: Option<&'m mut [u8]>,
}

/// Device memory. The machine checks alignment; the memory checks everything else.
pub trait Memory {
    /// The `length` bytes at `address`, or none if they are not inside one live allocation or if `access` is forbidden.
    ///
    /// The machine asks for the range that the threads of a warp access together, and after a refusal for each thread's own.
    fn region(&mut self, address: u64, length: usize, access: Access) -> Option<Region<'_>>;

    /// Why [`Memory::region`] gives nothing for this range. The machine adds kernel, thread and line.
    fn fault(&self, address: u64, length: usize, access: Access) -> Fault;
}

/// Kind of the mistake that stopped a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// An access outside every allocation, or one that the memory forbids.
    IllegalAddress,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// An access outside the block's shared memory.
    SharedOutOfBounds,
    /// A load of shared memory that nobody wrote.
    UninitialisedShared,
    /// Two threads of a block access the same byte of shared memory without a barrier in between, and one of them writes.
    SharedRace,
    /// A barrier that some threads of the block do not reach.
    BarrierDivergence,
    /// The instruction `trap`.
    Trap,
    /// A grid, block, shared memory or parameters that the function does not take.
    LaunchLimits,
    /// More instructions than the launch may execute.
    Timeout,
    /// An address, condition or stored value that depends on a register or local variable that nobody wrote.
    UninitialisedRegister,
    /// An access outside the thread's local memory.
    LocalOutOfBounds,
    /// A load of device memory that nobody wrote.
    UninitialisedGlobal,
    /// Two threads access the same byte of device memory without order, and one of them writes.
    GlobalRace,
    /// An operation of a warp or of four warps in which not all take part, or not in the same way.
    WarpDivergence,
    /// A use of shared memory or registers that an asynchronous copy or matrix product still writes or reads.
    InFlight,
    /// A matrix product of four warps reads what ordinary stores wrote, without `fence.proxy.async` in between.
    ProxyFence,
    /// A matrix product of four warps uses registers that were changed since the last `wgmma.fence`.
    WarpgroupFence,
    /// A descriptor of a matrix in shared memory that means nothing.
    MatrixDescriptor,
}

/// A mistake that stopped a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// Kernel, thread, line, and what happened.
    pub text: String,
}

impl Fault {
    /// A fault with a description.
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

impl std::error::Error for Fault {}
