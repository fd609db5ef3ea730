//! CPU: kernels that compute in slices.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::tensor::device::Backend;
use alloc::string::String;
use alloc::vec::Vec;

/// CPU: a table of kernels by op and element type. It uses one thread. A [`Backend`] with more threads can wrap it.
pub struct Cpu {
    name: String,
    kernels: &'static [&'static Kernel],
    table: Vec<Option<&'static Kernel>>,
}

impl Cpu {
    /// Creates a CPU that computes with `kernels`. If several kernels compute the same op and element type, it uses the first.
    pub fn new(name: impl Into<String>, kernels: &'static [&'static Kernel]) -> Cpu {
        let slots = kernels.iter().map(|kernel| Cpu::slot(kernel.def, kernel.dtype) + 1).max().unwrap_or(0);
        let mut table = alloc::vec![None; slots];
        for kernel in kernels.iter().rev() {
            table[Cpu::slot(kernel.def, kernel.dtype)] = Some(*kernel);
        }
        Cpu { name: name.into(), kernels, table }
    }

    fn slot(def: &OpDef, dtype: DType) -> usize {
        usize::from(def.code.0) * (DType::ALL.len() + 1) + dtype as usize
    }

    fn kernel(&self, def: &OpDef, dtype: DType) -> Option<&'static Kernel> {
        self.table.get(Cpu::slot(def, dtype)).copied().flatten()
    }
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        let dtype = call.inputs.first().map(|view| view.dtype()).or(call.outputs.first().map(|view| view.dtype()));
        let dtype = dtype.unwrap_or(DType::U8);
        let kernel = self.kernel(def, dtype);
        match kernel {
            Some(kernel) => (kernel.run)(call),
            None => Err(Error::NoKernel { op: def.name, dtype }),
        }
    }

    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.kernel(def, dtype).is_some()
    }

    fn kernels(&self) -> &[&'static Kernel] {
        self.kernels
    }
}
