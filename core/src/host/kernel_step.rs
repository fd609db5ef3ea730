//! The steps of a function compiled for the host: kernels, with the locations of their inputs and outputs.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, MAX_INPUTS, Slice};
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared};
use crate::base::view::{TensorView, TensorViewMut};
use crate::tensor::device::account::Holder;
use crate::tensor::device::buffer::Bytes;
use crate::tensor::device::{AlignedBytes, Buffer, Device};
use crate::tensor::profile::Transfer;
use alloc::vec::Vec;

/// The location of an operand's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Address {
    /// Scratch memory, at this offset in bytes.
    Scratch(usize),
    /// The whole buffer with this index.
    Buffer(usize),
}

/// A tensor that a step reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) tensor_type: TensorType,
    pub(crate) bytes: usize,
    pub(crate) place: Address,
}

/// Memory of a compiled function. No other owner holds a buffer while a step writes it.
pub(crate) struct Memory<'m> {
    /// Scratch memory of the host, or nothing if it is remote.
    pub(crate) scratch: &'m mut [u8],
    /// Address of scratch memory of a remote device.
    pub(crate) remote: u64,
    pub(crate) buffers: &'m mut [Option<Shared<Buffer>>],
}

impl Memory<'_> {
    /// Returns the address of `operand` in the memory of a remote device, or `None` if the memory does not contain it.
    pub(crate) fn address(&self, operand: &Operand) -> Option<u64> {
        match operand.place {
            Address::Scratch(start) => self.remote.checked_add(start as u64),
            Address::Buffer(index) => Some(self.buffers.get(index)?.as_ref()?.address()),
        }
    }

    /// Returns the address from which the places of a slot with this base count, or `None` if there is none.
    pub(crate) fn base(&self, base: u32) -> Option<u64> {
        match base.checked_sub(1) {
            None => Some(self.remote),
            Some(index) => Some(self.buffers.get(index as usize)?.as_ref()?.address()),
        }
    }

    /// Returns the addresses of all bases of slots, 0 for buffers that are not there.
    pub(crate) fn bases(&self) -> Vec<u64> {
        let buffers = self.buffers.iter().map(|buffer| buffer.as_ref().map_or(0, |buffer| buffer.address()));
        core::iter::once(self.remote).chain(buffers).collect()
    }

    /// Returns the bytes of `operand`, which no step writes at the moment. Those of a remote device are copied to the host.
    pub(crate) fn read(&self, operand: &Operand, device: &Device) -> Result<Bytes<'_>> {
        let seen = match (operand.place, device.remote()) {
            (Address::Buffer(index), _) => return self.buffers.get(index).and_then(Option::as_ref).ok_or(Error::Internal)?.read(),
            (Address::Scratch(start), None) => part(self.scratch, start, operand.bytes),
            (Address::Scratch(_), Some(remote)) => {
                let mut copy = AlignedBytes::staged(operand.bytes)?;
                if operand.bytes > 0 {
                    let from = self.address(operand).ok_or(Error::Internal)?;
                    device.transfer(Transfer::Download, operand.bytes, || remote.download(from, &mut copy))?;
                }
                return Ok(Bytes::from(copy));
            }
        };
        Ok(Bytes::from(seen.ok_or(Error::Internal)?))
    }
}

/// Scratch memory that all plans of a function share. For each device, it has as many pieces as the largest number of runs that were
/// active at the same time.
pub(crate) struct Scratch {
    /// Name of the function, for errors about memory.
    name: Shared<str>,
    pieces: Lock<Vec<Buffer>>,
}

impl Scratch {
    /// Creates scratch memory for the function `name`.
    pub(crate) fn new(name: &str) -> Scratch {
        Scratch { name: name.into(), pieces: Lock::new(Vec::new()) }
    }

    /// Returns the holder of the function's memory.
    pub(crate) fn holder(&self) -> Holder {
        Holder::Function(self.name.clone())
    }

    /// Returns the number of bytes that a run's scratch memory on `device` can have at present.
    pub(crate) fn room(&self, device: &Device) -> u64 {
        let memory = device.memory_info();
        let own = self.pieces.lock().iter().rfind(|piece| piece.device() == device).map_or(0, Buffer::len) as u64;
        memory.limit.map_or(u64::MAX, |limit| limit.saturating_sub(memory.current).saturating_add(own))
    }

    /// Calls `work` with at least `bytes` bytes of scratch memory of `device`, whose content is arbitrary. Fails if there is no memory.
    pub(crate) fn with<R>(&self, device: &Device, bytes: usize, work: impl FnOnce(&mut Buffer) -> Result<R>) -> Result<R> {
        let mut pieces = self.pieces.lock();
        let own = pieces.iter().rposition(|piece| piece.device() == device);
        let own = own.map(|index| pieces.swap_remove(index));
        drop(pieces);
        // A piece that is too small is freed first.
        let mut piece = match own.filter(|piece| piece.len() >= bytes) {
            Some(piece) => piece,
            None => Buffer::allocate(device, bytes, self.holder())?,
        };
        let result = work(&mut piece);
        self.pieces.lock().push(piece);
        result
    }
}

/// A step that calls a kernel with one output.
pub(crate) struct Single {
    pub(crate) kernel: &'static Kernel,
    pub(crate) attributes: Vec<u32>,
    pub(crate) inputs: Vec<Operand>,
    pub(crate) output: Operand,
}

impl Single {
    /// Runs the kernel. The time of this function adds to that of every kernel, so one or two inputs take a fast path.
    #[inline]
    pub(crate) fn run(&self, memory: Memory<'_>) -> Result<()> {
        let Some((data, around)) = Around::split(memory, &self.output) else { return Err(Error::Internal) };
        let outputs = &mut [TensorViewMut { tensor_type: &self.output.tensor_type, data }];
        let attributes = &self.attributes;
        match self.inputs.as_slice() {
            [x] => (self.kernel.run)(&mut Call { attributes, inputs: &[around.view(x)], outputs, slice: &mut Slice::all() }),
            [a, b] => {
                (self.kernel.run)(&mut Call { attributes, inputs: &[around.view(a), around.view(b)], outputs, slice: &mut Slice::all() })
            }
            inputs => {
                let inputs: heapless::Vec<TensorView<'_>, MAX_INPUTS> = inputs.iter().map(|input| around.view(input)).collect();
                (self.kernel.run)(&mut Call { attributes, inputs: &inputs, outputs, slice: &mut Slice::all() })
            }
        }
    }
}

/// The memory around an output.
struct Around<'m> {
    before: &'m [u8],
    /// Offset of the output's end in scratch memory.
    end: usize,
    after: &'m [u8],
    low: &'m [Option<Shared<Buffer>>],
    high: &'m [Option<Shared<Buffer>>],
}

impl<'m> Around<'m> {
    /// Splits `memory` into the bytes of `output` and the memory around them. Returns `None` if `output` is outside the memory or
    /// its buffer is shared.
    #[inline(always)]
    fn split(memory: Memory<'m>, output: &Operand) -> Option<(&'m mut [u8], Around<'m>)> {
        let Memory { scratch, buffers, .. } = memory;
        match output.place {
            Address::Scratch(start) => {
                let (before, rest) = scratch.split_at_mut_checked(start)?;
                let (data, after) = rest.split_at_mut_checked(output.bytes)?;
                Some((data, Around { before, end: start + output.bytes, after, low: buffers, high: &[] }))
            }
            Address::Buffer(index) => {
                let (low, rest) = buffers.split_at_mut_checked(index)?;
                let (own, high) = rest.split_first_mut()?;
                let data = Shared::get_mut(own.as_mut()?)?.memory_mut();
                Some((data, Around { before: scratch, end: 0, after: &[], low, high }))
            }
        }
    }

    /// Returns a view of operand `input`. The view has no data if the operand shares the output's location.
    #[inline(always)]
    fn view<'v>(&self, input: &'v Operand) -> TensorView<'v>
    where
        'm: 'v,
    {
        let data = match input.place {
            Address::Scratch(start) if start <= self.before.len() => part(self.before, start, input.bytes),
            Address::Scratch(start) => part(self.after, start.wrapping_sub(self.end), input.bytes),
            Address::Buffer(index) => {
                let buffer = self.low.get(index).or_else(|| self.high.get(index.wrapping_sub(self.low.len() + 1)));
                buffer.and_then(Option::as_ref).map(|buffer| buffer.memory())
            }
        };
        TensorView { tensor_type: &input.tensor_type, data }
    }
}

/// Returns the `count` bytes from `first` on, or `None` if they reach past the end.
#[inline(always)]
pub(crate) fn part(bytes: &[u8], first: usize, count: usize) -> Option<&[u8]> {
    bytes.get(first..)?.get(..count)
}
