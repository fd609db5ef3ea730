//! Calls to the debugging host, on Arm and on RISC-V. Both have the same operations, and stop the processor by another instruction.

use core::arch::asm;

/// An operation of the debugging host, by its number.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Operation {
    /// Opens a file: name, mode, length of the name. Returns a handle.
    Open = 0x01,
    /// Closes a file: handle.
    Close = 0x02,
    /// Writes the character at the address.
    WriteC = 0x03,
    /// Writes to a file: handle, address, length. Returns the number of bytes that are left.
    Write = 0x05,
    /// Reads from a file: handle, address, length. Returns the number of bytes that are missing.
    Read = 0x06,
    /// Moves in a file: handle, position.
    Seek = 0x0a,
    /// Length of a file: handle.
    Length = 0x0c,
    /// Reads the command line: address, length.
    CommandLine = 0x15,
    /// Ends the program: the reason itself.
    Exit = 0x18,
}

/// Calls an operation of the debugging host. Returns its answer.
///
/// # Safety
///
/// `parameter` is what the operation expects: a number, or the address of memory that it may read or write.
pub unsafe fn call(operation: Operation, parameter: usize) -> usize {
    let answer;
    #[cfg(target_arch = "arm")]
    // SAFETY: the caller's promise.
    unsafe {
        asm!("bkpt #0xab", inout("r0") operation as usize => answer, in("r1") parameter, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "riscv32")]
    // SAFETY: the caller's promise. The host knows a call by these three instructions, without compression and in one page.
    unsafe {
        asm!(
            ".balign 16", ".option push", ".option norvc", "slli zero, zero, 0x1f", "ebreak", "srai zero, zero, 7", ".option pop",
            inout("a0") operation as usize => answer, in("a1") parameter, options(nostack, preserves_flags)
        );
    }
    answer
}

/// Like [`call`], with the address of a block of words.
///
/// # Safety
///
/// The words are what the operation expects.
pub unsafe fn call_with<const N: usize>(operation: Operation, mut block: [usize; N]) -> usize {
    // SAFETY: the caller's promise.
    unsafe { call(operation, block.as_mut_ptr() as usize) }
}

/// Ends the program, with success or with failure.
pub fn exit(success: bool) -> ! {
    // SAFETY: the parameter is a reason: an application's exit, or an error at run time.
    unsafe { call(Operation::Exit, if success { 0x2_0026 } else { 0x2_0023 }) };
    loop {
        core::hint::spin_loop();
    }
}
