//! The steps of a compiled function that a remote device computes in its own memory.

use crate::base::error::{Error, Result};
use crate::base::op::{MAX_INPUTS, MAX_OUTPUTS};
use crate::host::executable::Caller;
use crate::host::kernel_step::{Address, Memory, Operand};
use crate::ops;
use crate::tensor::device::Device;
use crate::tensor::device::remote::{Launch, Placed, Recorded, Slot, StepOp};
use crate::tensor::profile::Ops;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// An op that the device launches by itself.
pub(crate) struct Launched(pub(crate) StepOp);

impl Launched {
    pub(crate) fn run(&self, memory: &Memory<'_>, device: &Device) -> Result<()> {
        let StepOp { op, attributes, inputs, outputs } = &self.0;
        let inputs = placed::<MAX_INPUTS>(inputs, memory).ok_or(Error::Internal)?;
        let outputs = placed::<MAX_OUTPUTS>(outputs, memory).ok_or(Error::Internal)?;
        let launched = device.remote().ok_or(Error::Internal)?.launch(&Launch { op, attributes, inputs: &inputs, outputs: &outputs });
        launched.map_err(|error| ops::assert::explain(error, attributes))
    }
}

fn placed<'s, const N: usize>(slots: &'s [Slot], memory: &Memory<'_>) -> Option<heapless::Vec<Placed<'s>, N>> {
    slots.iter().map(|slot| Some(Placed { tensor_type: &slot.tensor_type, address: memory.base(slot.base)? + slot.offset })).collect()
}

impl Slot {
    /// Returns the place of an operand. Base 0 is scratch memory, the next ones are the buffers.
    pub(crate) fn of(operand: &Operand) -> Slot {
        let (base, offset) = match operand.place {
            Address::Scratch(start) => (0, start as u64),
            Address::Buffer(index) => (index as u32 + 1, 0),
        };
        Slot { tensor_type: operand.tensor_type, base, offset }
    }
}

/// Consecutive steps that the device has prepared, and runs together.
pub(crate) struct Prepared {
    pub(crate) recorded: Box<dyn Recorded>,
    /// For each step, the description that a profiler receives, and the attribute words of its first node.
    pub(crate) steps: Vec<(Ops, Vec<u32>)>,
}

impl Prepared {
    pub(crate) fn run(&self, memory: &Memory<'_>) -> Result<()> {
        self.recorded.run(&memory.bases()).map_err(|(index, error)| self.failed(index, error))
    }

    /// Runs the steps one by one, and reports them to the profiler.
    pub(crate) fn told(&self, memory: &Memory<'_>, caller: &Caller<'_>) -> Result<()> {
        let bases = memory.bases();
        let step = |(index, (ops, _)): (usize, &(Ops, Vec<u32>))| {
            caller.timed(ops, || self.recorded.step(index, &bases)).map_err(|error| self.failed(index, error))
        };
        self.steps.iter().enumerate().try_for_each(step)
    }

    /// Returns the error of a step. The instruction that it names counts from the first of these steps.
    fn failed(&self, index: usize, error: Error) -> Error {
        let before: usize = self.steps.iter().take(index).map(|(ops, _)| ops.nodes.len()).sum();
        let attributes = self.steps.get(index).map_or(&[][..], |(_, attributes)| attributes);
        ops::assert::explain(error.at(before as u32), attributes)
    }
}
