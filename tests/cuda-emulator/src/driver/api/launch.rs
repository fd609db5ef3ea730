//! Launches of kernels.

use crate::driver::state::{Emulator, Handle, call_on_device};
use crate::driver::status::{Outcome, Status, Stop};
use crate::driver::work::{Call, Work};
use crate::ptx::Function;
use std::ffi::c_void;

/// A kernel with its grid and parameters: the driver's `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelNode {
    /// The function.
    pub function: Handle,
    /// Blocks of the grid along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// An address per parameter.
    pub parameters: *mut *mut c_void,
    /// Or the parameters as one buffer: pairs of a key and its value.
    pub extra: *mut *mut c_void,
}

/// Key of the buffer's address in `extra`.
const BUFFER: usize = 1;
/// Key of the address of the buffer's size in `extra`.
const BUFFER_SIZE: usize = 2;

/// Launches a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        let node = KernelNode { function, grid, block, shared_bytes, parameters, extra };
        // SAFETY: the caller gives the function's parameters.
        let call = unsafe { emulator.kernel(device, &node) }?;
        emulator.fail_launch(device)?;
        emulator.counts.kernel_launches += 1;
        emulator.submit(stream, Work::Kernel(call)).map(drop)
    })
}

impl Emulator {
    /// Checks a launch and copies its parameters.
    ///
    /// # Safety
    ///
    /// The addresses of parameters are null or lead to values of the function's types.
    pub(crate) unsafe fn kernel(&mut self, device: usize, node: &KernelNode) -> Outcome<Call> {
        let function = self.functions.get(&node.function).filter(|function| function.device == device).ok_or(Status::INVALID_HANDLE)?;
        let code = function.code.clone();
        let is_terminated = self.configuration.terminated;
        let result = check_limits(function.dynamic_shared, node).and_then(|()| {
            // SAFETY: the caller guarantees it.
            unsafe { read_parameters(&code, node, is_terminated) }
        });
        let invalid = |text| Stop::new(Status::INVALID_VALUE, format!("LaunchLimits: kernel {}: {text}", code.name()));
        let parameters = result.map_err(|text| self.refuse(invalid(text)))?;
        let (grid, block, dynamic_shared) = (node.grid, node.block, node.shared_bytes);
        Ok(Call { function: node.function, code, grid, block, dynamic_shared, parameters })
    }

    /// Fails if a test wants this launch to fail.
    pub(crate) fn fail_launch(&mut self, device: usize) -> Outcome {
        if self.triggers.fails_launch() {
            self.stop(device, Stop::new(Status::LAUNCH_FAILED, "LaunchFailed: the control lets this launch fail"));
            return Err(Status::LAUNCH_FAILED);
        }
        Ok(())
    }
}

fn check_limits(dynamic_shared: u32, node: &KernelNode) -> Result<(), String> {
    let within = |sizes: [u32; 3], most: [u32; 3]| sizes.iter().zip(most).all(|(&size, most)| (1..=most).contains(&size));
    if !within(node.grid, [i32::MAX as u32, 65_535, 65_535]) {
        return Err(format!("a grid of {:?} blocks", node.grid));
    }
    if !within(node.block, [1024, 1024, 64]) || node.block.iter().product::<u32>() > 1024 {
        return Err(format!("blocks of {:?} threads", node.block));
    }
    if node.shared_bytes > dynamic_shared {
        return Err(format!("{} bytes of dynamic shared memory, where the function may have {dynamic_shared}", node.shared_bytes));
    }
    Ok(())
}

/// Copies the parameters.
///
/// # Safety
///
/// See [`Emulator::kernel`].
unsafe fn read_parameters(code: &Function, node: &KernelNode, is_terminated: bool) -> Result<Vec<u8>, String> {
    let size = code.parameters().last().map_or(0, |last| (last.offset + last.size) as usize);
    if !node.extra.is_null() && !node.parameters.is_null() {
        return Err("parameters in both forms".into());
    }
    if !node.extra.is_null() {
        // SAFETY: the caller guarantees it.
        return unsafe { read_buffer(size, node.extra) };
    }
    if node.parameters.is_null() && size > 0 {
        return Err("no parameters".into());
    }
    let mut bytes = vec![0; size];
    for (index, parameter) in code.parameters().iter().enumerate() {
        // SAFETY: the caller gives an address for each parameter.
        let value = unsafe { *node.parameters.add(index) };
        if value.is_null() {
            return Err(format!("parameter {index} is missing"));
        }
        let place = &mut bytes[parameter.offset as usize..][..parameter.size as usize];
        // SAFETY: the address leads to a value of the parameter's type.
        unsafe { std::ptr::copy_nonoverlapping(value.cast(), place.as_mut_ptr(), place.len()) };
    }
    // SAFETY: the caller has said that it ends the addresses with a null pointer.
    if is_terminated && !node.parameters.is_null() && !unsafe { *node.parameters.add(code.parameters().len()) }.is_null() {
        return Err(format!("more than {} parameters", code.parameters().len()));
    }
    Ok(bytes)
}

/// Copies parameters from a buffer that must have `size` bytes.
///
/// # Safety
///
/// See [`Emulator::kernel`].
unsafe fn read_buffer(size: usize, extra: *mut *mut c_void) -> Result<Vec<u8>, String> {
    let (mut buffer, mut given) = (std::ptr::null::<u8>(), 0);
    for pair in 0.. {
        // SAFETY: the pairs end with the key 0.
        let (key, value) = unsafe { (*extra.add(2 * pair) as usize, || *extra.add(2 * pair + 1)) };
        match key {
            0 => break,
            BUFFER => buffer = value() as *const u8,
            // SAFETY: the value is the address of a size.
            BUFFER_SIZE => given = unsafe { *(value() as *const usize) },
            _ => return Err(format!("key {key} in the parameters")),
        }
    }
    if buffer.is_null() || given != size {
        return Err(format!("{given} bytes of parameters, not {size}"));
    }
    // SAFETY: the buffer has the size that the caller has given.
    Ok(unsafe { std::slice::from_raw_parts(buffer, size) }.to_vec())
}
