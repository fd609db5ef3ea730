//! The steps of a function compiled for the host: kernels, with the locations of their inputs and outputs.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, MAX_INPUTS, Slice};
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared};
use crate::base::view::{TensorView, TensorViewMut};
use crate::tensor::device::{AlignedBytes, Buffer};
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
    pub(crate) scratch: &'m mut [u8],
    pub(crate) buffers: &'m mut [Option<Shared<Buffer>>],
}

impl Memory<'_> {
    /// Returns the bytes of `operand`, which no step writes at the moment. Returns `None` if the memory does not contain them.
    pub(crate) fn bytes(&self, operand: &Operand) -> Option<&[u8]> {
        match operand.place {
            Address::Scratch(start) => part(self.scratch, start, operand.bytes),
            Address::Buffer(index) => Some(self.buffers.get(index)?.as_ref()?.bytes()),
        }
    }
}

/// Scratch memory that all plans of a function share. It has as many pieces as the largest number of runs that were active at the
/// same time.
#[derive(Default)]
pub(crate) struct Scratch(Lock<Vec<AlignedBytes>>);

impl Scratch {
    /// Calls `work` with `bytes` bytes of scratch memory, whose content is arbitrary.
    pub(crate) fn with<R>(&self, bytes: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
        if bytes == 0 {
            return work(&mut []);
        }
        let mut piece = self.0.lock().pop().unwrap_or_default();
        if piece.len() < bytes {
            piece = AlignedBytes::zeroed(bytes);
        }
        let result = work(piece.get_mut(..bytes).unwrap_or_default());
        self.0.lock().push(piece);
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
        let (data, around) = Around::split(memory, &self.output).ok_or(Error::Internal)?;
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
        let Memory { scratch, buffers } = memory;
        match output.place {
            Address::Scratch(start) => {
                let (before, rest) = scratch.split_at_mut_checked(start)?;
                let (data, after) = rest.split_at_mut_checked(output.bytes)?;
                Some((data, Around { before, end: start + output.bytes, after, low: buffers, high: &[] }))
            }
            Address::Buffer(index) => {
                let (low, rest) = buffers.split_at_mut_checked(index)?;
                let (own, high) = rest.split_first_mut()?;
                let data = Shared::get_mut(own.as_mut()?)?.bytes_mut();
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
                buffer.and_then(Option::as_ref).map(|buffer| buffer.bytes())
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
