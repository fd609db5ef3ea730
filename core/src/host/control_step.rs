//! The steps of a compiled function for control flow and for effects.

use crate::base::error::Result;
use crate::base::format::Said;
use crate::base::op::{Call, Kernel, MAX_INPUTS, NONE, Slice};
use crate::base::view::TensorView;
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
        let mut first = 0;
        loop {
            let mut slice = Slice { first, ..Slice::all() };
            self.decide(&memory.read(&self.by, caller.device)?, &mut slice)?;
            if let Some(block) = self.blocks.get(slice.answer as usize) {
                run(block, &mut memory, caller)?;
            }
            if slice.next == NONE {
                return Ok(());
            }
            first = slice.next;
        }
    }

    /// Runs the kernel, whose answer in `slice` is the next block. `data` are the bytes of the operand that decides.
    fn decide(&self, data: &[u8], slice: &mut Slice) -> Result<()> {
        let inputs = &[TensorView { tensor_type: &self.by.tensor_type, data: Some(data) }];
        (self.kernel.run)(&mut Call { attributes: &self.attributes, inputs, outputs: &mut [], slice })
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
        let read = self.inputs.iter().map(|input| memory.read(input, device)).collect::<Result<heapless::Vec<_, MAX_INPUTS>>>()?;
        let inputs = self.inputs.iter().zip(&read);
        let inputs = inputs.map(|(input, bytes)| TensorView { tensor_type: &input.tensor_type, data: Some(bytes) });
        let inputs: heapless::Vec<TensorView<'_>, MAX_INPUTS> = inputs.collect();
        let mut slice = Slice::all();
        (self.kernel.run)(&mut Call { attributes: &self.attributes, inputs: &inputs, outputs: &mut [], slice: &mut slice })
            .map_err(|error| ops::assert::explain(error, &self.attributes))?;
        Said::new(slice.answer, &self.attributes, &inputs).map_or(Ok(()), |said| device.say(&said))
    }
}
