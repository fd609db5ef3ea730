//! Devices whose memory the host cannot address, such as GPUs.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::OpDef;
use crate::base::shape::TensorType;
use crate::base::sync::ThreadSafe;
use crate::tensor::device::external::Imported;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;

/// Memory that the host cannot address, and the ops that run in it. An address is a number that only the device understands. The address
/// of a byte inside an allocation is the address of the allocation plus the offset of the byte.
///
/// Work on one device happens in the order of the calls, as far as a caller can see.
pub trait Remote: ThreadSafe {
    /// Allocates `bytes` bytes, more than 0, and returns their address, which is never 0. Their content is arbitrary.
    fn allocate(&self, bytes: usize) -> Result<u64, Refused>;
    /// Frees the `bytes` bytes at `address`, a whole allocation.
    fn free(&self, address: u64, bytes: usize);
    /// Returns the limit of the device's memory in bytes, or `None` if the device does not know one.
    fn limit(&self) -> Option<u64>;
    /// Copies `bytes` from the host to address `to`.
    fn upload(&self, bytes: &[u8], to: u64) -> Result<()>;
    /// Copies the bytes at address `from` to the host, and fills `bytes`.
    fn download(&self, from: u64, bytes: &mut [u8]) -> Result<()>;
    /// Copies `bytes` bytes from address `from` to address `to`. The two ranges do not overlap.
    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()>;
    /// Writes the bytes `element` again and again, until the `bytes` bytes at address `to` are full. `bytes` is a multiple of the size of
    /// the element, which is 1, 2, 4 or 8.
    fn fill(&self, element: &[u8], to: u64, bytes: usize) -> Result<()>;
    /// Computes an op that has outputs, or that the device [checks](Remote::checks). Fails with [`Error::NoKernel`] if the device cannot
    /// compute the op for these types.
    fn launch(&self, launch: &Launch<'_>) -> Result<()>;

    /// Waits until all work that was put on the device is done.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// Makes memory that the program owns addressable. `source` describes it, in a type that the device defines. Fails if it is of another
    /// type, or if the device cannot address the memory.
    fn import(&self, source: Box<dyn Any + Send + Sync>) -> Result<Imported> {
        let _ = source;
        Err(Error::message("the device takes no external memory"))
    }

    /// Calls `work`, which puts work on the device, waits until that is done, and returns the nanoseconds that it took by the device's own
    /// clock. A device without a clock only calls `work`, and returns `None`. Profilers measure launches and transfers this way.
    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<u64>> {
        work().map(|()| None)
    }

    /// True if the device itself computes `op`, which has no outputs because it only checks its inputs. The inputs of other such ops are
    /// copied to the host.
    fn checks(&self, op: &OpDef, dtype: DType) -> bool {
        let _ = (op, dtype);
        false
    }

    /// Returns the groups of nodes that [`Remote::record`] takes.
    fn fuses(&self) -> Fuses {
        Fuses::Nothing
    }

    /// Prepares steps that run together, in this order, whenever a compiled function runs. Returns `None` if the device only launches ops.
    ///
    /// Fails with [`Error::NoKernel`] if the device cannot compute a step.
    fn record(&self, steps: Vec<Step>) -> Result<Option<Box<dyn Recorded>>> {
        let _ = steps;
        Ok(None)
    }
}

/// The groups of nodes that a device computes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuses {
    /// No groups.
    Nothing,
    /// Groups of elementwise nodes.
    Elementwise,
    /// Groups of elementwise nodes, and such groups that begin with a product or end with a reduction.
    ///
    /// The product is a `matmul`, `dense`, `conv2d` or `conv2d_input_grad` of f32. The outputs of all nodes are then f32 and overlap
    /// nothing that the group reads, and the last node's is kept.
    ///
    /// The reduction reduces a value of the group: a sum or mean of floats of at most 32 bits, or a maximum of f32. It reduces an axis, or
    /// neighbouring axes, and has from 1 to 2³² − 1 elements.
    Neighbours,
}

/// Steps of a compiled function that a device has prepared.
///
/// `bases` are the addresses to which slots refer: that of the function's scratch memory first, then those of its buffers. A buffer that is
/// not there in this run has address 0, and no step uses it.
pub trait Recorded: ThreadSafe {
    /// Runs all steps. A step that refuses its data is named, and no later step has changed a variable then. If the device fails, the named
    /// step is the first of those among which it was noticed.
    fn run(&self, bases: &[u64]) -> Result<(), (usize, Error)>;
    /// Runs one step. Profilers measure steps this way.
    fn step(&self, index: usize, bases: &[u64]) -> Result<()>;
}

/// A step that a device prepares.
#[derive(Clone)]
pub enum Step {
    /// An op.
    Op(StepOp),
    /// Nodes that compute element by element, in this order, and perhaps a product before or a reduction after them
    /// ([`Fuses::Neighbours`]). The device computes them together, and keeps the values between them in registers.
    Group {
        /// Number of elements of each output but the reduction's.
        elements: usize,
        /// The nodes.
        members: Vec<Member>,
    },
}

/// An op of a compiled function.
#[derive(Clone)]
pub struct StepOp {
    /// The op.
    pub op: &'static OpDef,
    /// The attribute words.
    pub attributes: Vec<u32>,
    /// The inputs. An input that the op updates in place has the slot of the output.
    pub inputs: Vec<Slot>,
    /// The outputs.
    pub outputs: Vec<Slot>,
}

/// A node of a group.
#[derive(Clone)]
pub struct Member {
    /// The op, which has one output.
    pub op: &'static OpDef,
    /// The attribute words.
    pub attributes: Vec<u32>,
    /// The inputs.
    pub inputs: Vec<Source>,
    /// The type of the output.
    pub output: TensorType,
    /// The place of the output, or `None` if only later members read it. It may be the place of an input with as many bytes that no later
    /// member reads from memory. The result of a reduction overlaps nothing that the group reads or writes.
    pub kept: Option<Slot>,
}

/// An input of a group's node. That of an elementwise node is broadcast to the shape of the node's output.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A tensor in memory, which no earlier member writes.
    Memory(Slot),
    /// The output of an earlier member, in a shape with as many elements.
    Value {
        /// Index of the member.
        member: usize,
        /// The type, with the shape in which it is read.
        tensor_type: TensorType,
    },
}

/// A tensor of a compiled function, in memory of a remote device.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The element type and shape.
    pub tensor_type: TensorType,
    /// Index of the address from which the tensor's place counts: see [`Recorded`].
    pub base: u32,
    /// Offset of the first byte from that address.
    pub offset: u64,
}

/// Reason why a device did not allocate memory.
pub enum Refused {
    /// There is no free block of this size.
    Full {
        /// Number of free bytes.
        free: u64,
        /// Size of the largest free block in bytes.
        largest: u64,
    },
    /// The device failed.
    Failed(Error),
}

/// An op that a remote device computes in its own memory.
pub struct Launch<'l> {
    /// The op.
    pub op: &'static OpDef,
    /// The attribute words.
    pub attributes: &'l [u32],
    /// The inputs. An input that the op updates in place has the address of the output. The other inputs overlap no output.
    pub inputs: &'l [Placed<'l>],
    /// The outputs. They have the types that the op's shape rule returns.
    pub outputs: &'l [Placed<'l>],
}

/// A tensor in the memory of a remote device.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'l> {
    /// The element type and shape.
    pub tensor_type: &'l TensorType,
    /// The address of the first byte, a multiple of 16. It means nothing if the tensor has no elements.
    pub address: u64,
}
