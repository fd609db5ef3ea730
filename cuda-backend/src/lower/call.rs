//! The form in which an op reaches the driver: launches of kernels with their arguments.

use crate::ptx::Code;

/// Number of threads of a block, unless a kernel needs another one.
pub(crate) const BLOCK: u32 = 256;
/// Largest number of blocks of a kernel whose threads loop over elements.
const MAX_BLOCKS: u64 = 4096;

/// A launch of a kernel. Each kernel begins with the parameters `unsigned *fault, unsigned step`, which the launcher sets; `arguments` are
/// the parameters after them.
#[derive(Clone, Debug)]
pub(crate) struct KernelCall {
    /// The kernel.
    pub code: Code,
    /// Numbers of blocks in x, y and z.
    pub grid: [u32; 3],
    /// Numbers of threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Size of the dynamic shared memory of a block in bytes.
    pub shared: u32,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

/// An argument of a kernel.
#[derive(Clone, Debug)]
pub(crate) enum Argument {
    /// The address of the input with this index.
    Input(usize),
    /// The address of the output with this index.
    Output(usize),
    /// Words of 32 bits: a number, or a structure of such numbers.
    Words(Vec<u32>),
    /// A number of 64 bits.
    Wide(u64),
    /// A structure of 64-bit numbers and addresses.
    Structure(Vec<Argument>),
    /// The address of the device's workspace. Its content is arbitrary, and kernels that run later overwrite it.
    Workspace,
}

impl Argument {
    /// Returns the argument with other operands: `operand` returns those that replace inputs and outputs.
    pub(crate) fn with(self, operand: &impl Fn(Argument) -> Argument) -> Argument {
        match self {
            Argument::Input(_) | Argument::Output(_) => operand(self),
            Argument::Structure(fields) => Argument::Structure(fields.into_iter().map(|field| field.with(operand)).collect()),
            other => other,
        }
    }
}

impl KernelCall {
    /// Returns the launch with other operands.
    pub(crate) fn with(mut self, operand: impl Fn(Argument) -> Argument) -> KernelCall {
        self.arguments = self.arguments.into_iter().map(|argument| argument.with(&operand)).collect();
        self
    }

    /// True if the launch uses the device's workspace.
    pub(crate) fn needs_workspace(&self) -> bool {
        self.arguments.iter().any(|argument| matches!(argument, Argument::Workspace))
    }

    /// Returns the kernel's name and its numbers of blocks, which tell the plans for an op apart.
    pub(super) fn name(&self) -> String {
        let [x, y, z] = self.grid;
        format!("{} {x}x{y}x{z}", self.code.entry())
    }

    /// Creates a launch in which `threads` threads share the work, in blocks of [`BLOCK`]. If they are too many, each thread loops, so the
    /// kernel strides by the size of the grid.
    pub(crate) fn over(threads: u64, code: Code, arguments: Vec<Argument>) -> KernelCall {
        let blocks = threads.div_ceil(u64::from(BLOCK)).clamp(1, MAX_BLOCKS) as u32;
        KernelCall { code, grid: [blocks, 1, 1], block: [BLOCK, 1, 1], shared: 0, arguments }
    }
}
