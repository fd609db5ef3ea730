//! Devices whose memory the host cannot address, such as GPUs.

use crate::base::error::{Error, Result};
use crate::base::op::OpDef;
use crate::base::shape::TensorType;
use crate::base::sync::ThreadSafe;

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
    /// Computes an op that has outputs. Fails with [`Error::NoKernel`] if the device cannot compute the op for these types.
    fn launch(&self, launch: &Launch<'_>) -> Result<()>;
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
