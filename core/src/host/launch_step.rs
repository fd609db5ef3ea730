//! A step that a remote device computes in its own memory.

use crate::base::error::{Error, Result};
use crate::base::op::{MAX_INPUTS, MAX_OUTPUTS, OpDef};
use crate::host::kernel_step::{Memory, Operand};
use crate::tensor::device::Device;
use crate::tensor::device::remote::{Launch, Placed};
use alloc::vec::Vec;

/// A node with outputs.
pub(crate) struct Launched {
    pub(crate) op: &'static OpDef,
    pub(crate) attributes: Vec<u32>,
    pub(crate) inputs: Vec<Operand>,
    pub(crate) outputs: Vec<Operand>,
}

impl Launched {
    pub(crate) fn run(&self, memory: &Memory<'_>, device: &Device) -> Result<()> {
        let inputs = placed::<MAX_INPUTS>(&self.inputs, memory).ok_or(Error::Internal)?;
        let outputs = placed::<MAX_OUTPUTS>(&self.outputs, memory).ok_or(Error::Internal)?;
        let launch = Launch { op: self.op, attributes: &self.attributes, inputs: &inputs, outputs: &outputs };
        device.remote().ok_or(Error::Internal)?.launch(&launch)
    }
}

fn placed<'s, const N: usize>(operands: &'s [Operand], memory: &Memory<'_>) -> Option<heapless::Vec<Placed<'s>, N>> {
    operands.iter().map(|operand| Some(Placed { tensor_type: &operand.tensor_type, address: memory.address(operand)? })).collect()
}
