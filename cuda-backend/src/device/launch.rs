//! Launches of kernels: their arguments in the form that the driver reads.

use crate::driver::Driver;
use crate::driver::api::{Handle, KernelNode};
use crate::gpu::modules::Function;
use crate::lower::call::{Argument, KernelCall};
use gradlet_core::{Error, Result};
use std::ffi::c_void;

/// A kernel with its arguments, ready to be launched.
#[derive(Clone)]
pub(crate) struct Ready {
    function: Function,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    /// The arguments. Each one begins with a word of its own.
    words: Vec<u64>,
    /// Index of the first word of each argument.
    starts: Vec<usize>,
    /// The arguments that are addresses, with their operands.
    addresses: Vec<(usize, Operand)>,
    needs_workspace: bool,
}

/// An operand of an op, by its index.
#[derive(Clone, Copy)]
pub(crate) enum Operand {
    Input(usize),
    Output(usize),
}

impl Ready {
    /// Prepares a launch for step `step`. `fault` is the address of the word to which a kernel writes the number of a step that refuses its
    /// data, and `workspace` that of the workspace. The addresses of the operands are missing.
    pub(crate) fn new(call: &KernelCall, function: Function, fault: u64, step: u32, workspace: u64) -> Ready {
        let mut ready = Ready {
            function,
            grid: call.grid,
            block: call.block,
            shared: call.shared,
            words: vec![fault, step.into()],
            starts: vec![0, 1],
            addresses: Vec::new(),
            needs_workspace: call.needs_workspace(),
        };
        for argument in &call.arguments {
            ready.starts.push(ready.words.len());
            ready.push(argument, workspace);
        }
        ready
    }

    /// Returns the number of the launch's step.
    pub(crate) fn step(&self) -> u32 {
        self.words[1] as u32
    }

    /// True if the launch uses the device's workspace.
    pub(crate) fn needs_workspace(&self) -> bool {
        self.needs_workspace
    }

    fn push(&mut self, argument: &Argument, workspace: u64) {
        match argument {
            Argument::Input(index) => self.push_address(Operand::Input(*index)),
            Argument::Output(index) => self.push_address(Operand::Output(*index)),
            Argument::Wide(number) => self.words.push(*number),
            Argument::Workspace => self.words.push(workspace),
            Argument::Structure(fields) => fields.iter().for_each(|field| self.push(field, workspace)),
            Argument::Words(words) => {
                let pair = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
                self.words.extend(words.chunks(2).map(pair));
            }
        }
    }

    fn push_address(&mut self, operand: Operand) {
        self.addresses.push((self.words.len(), operand));
        self.words.push(0);
    }

    /// Sets the addresses of the operands. Returns true if one has changed.
    pub(crate) fn place(&mut self, address: impl Fn(Operand) -> Option<u64>) -> Result<bool> {
        let mut changed = false;
        for &(start, operand) in &self.addresses {
            let (address, word) = (address(operand).ok_or(Error::Internal)?, self.words.get_mut(start).ok_or(Error::Internal)?);
            changed |= *word != address;
            *word = address;
        }
        Ok(changed)
    }

    /// Returns the addresses of the arguments, as the driver wants them. A null address ends them, for drivers that count.
    fn parameters(&self) -> Vec<*mut c_void> {
        let address = |&start: &usize| self.words.as_ptr().wrapping_add(start).cast_mut().cast();
        self.starts.iter().map(address).chain([std::ptr::null_mut()]).collect()
    }

    /// Launches the kernel on `stream`. Its context is current.
    pub(crate) fn launch(&self, driver: &Driver, stream: Handle) -> Result<()> {
        let ([x, y, z], [own_x, own_y, own_z]) = (self.grid, self.block);
        let mut parameters = self.parameters();
        let nothing = std::ptr::null_mut();
        // SAFETY: the parameters have the sizes that the kernel's declaration states, and the driver copies them.
        let status = unsafe {
            let launch = driver.api().launch;
            launch(self.function.0, x, y, z, own_x, own_y, own_z, self.shared, stream, parameters.as_mut_ptr(), nothing)
        };
        driver.check("cuLaunchKernel", status)
    }

    /// Calls `with` with the launch as a node of a graph.
    pub(crate) fn node<R>(&self, with: impl FnOnce(&KernelNode) -> R) -> R {
        let mut parameters = self.parameters();
        with(&KernelNode {
            function: self.function.0,
            grid: self.grid,
            block: self.block,
            shared_bytes: self.shared,
            parameters: parameters.as_mut_ptr(),
            extra: std::ptr::null_mut(),
        })
    }
}
