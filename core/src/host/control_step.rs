//! The steps of a compiled function for control flow and for effects.

use crate::base::error::{Error, Result};
use crate::base::format::Said;
use crate::base::op::{Call, Kernel, MAX_INPUTS, NONE};
use crate::base::shape::TensorType;
use crate::base::view::{TensorView, TensorViewMut};
use crate::host::executable::{Caller, HostStep, run};
use crate::host::kernel_step::{Memory, Operand};
use crate::ops;
use crate::tensor::device::Device;
use alloc::vec::Vec;

/// A branch or a loop. Its kernel decides which block runs next.
pub(crate) struct Branches {
    pub(crate) kernel: &'static Kernel,
    /// The attribute words, as in a program. Block numbers are indices into `blocks`.
    pub(crate) attributes: Vec<u32>,
    /// The operand that decides: a condition or an index.
    pub(crate) by: Operand,
    pub(crate) blocks: Vec<Vec<HostStep>>,
}

impl Branches {
    pub(crate) fn run(&self, mut memory: Memory<'_>, caller: &Caller<'_>) -> Result<()> {
        let mut words = [0, NONE];
        loop {
            let data = memory.bytes(&self.by).ok_or(Error::Internal)?;
            ask(self.kernel, &self.attributes, &[TensorView { tensor_type: &self.by.tensor_type, data: Some(data) }], &mut words)?;
            let Some(block) = self.blocks.get(words[1] as usize) else { return Ok(()) };
            run(block, &mut memory, caller)?;
        }
    }
}

/// A node without outputs. It may stop the run or print something.
pub(crate) struct Effect {
    pub(crate) kernel: &'static Kernel,
    pub(crate) attributes: Vec<u32>,
    pub(crate) inputs: Vec<Operand>,
}

impl Effect {
    pub(crate) fn run(&self, memory: &Memory<'_>, device: &Device) -> Result<()> {
        let inputs = self.inputs.iter().map(|input| TensorView { tensor_type: &input.tensor_type, data: memory.bytes(input) });
        let inputs: heapless::Vec<TensorView<'_>, MAX_INPUTS> = inputs.collect();
        let mut words = [0, NONE];
        ask(self.kernel, &self.attributes, &inputs, &mut words).map_err(|error| ops::assert::explain(error, &self.attributes))?;
        Said::new(words[1], &self.attributes, &inputs).map_or(Ok(()), |said| device.say(&said))
    }
}

/// Calls the kernel of an op without outputs, which receives `words` in place of an output. The kernel writes its answer into the
/// second word.
fn ask(kernel: &Kernel, attributes: &[u32], inputs: &[TensorView<'_>], words: &mut [u32; 2]) -> Result<()> {
    let data = bytemuck::bytes_of_mut(words);
    (kernel.run)(&mut Call::new(attributes, inputs, &mut [TensorViewMut { tensor_type: &TensorType::I32, data }]))
}
