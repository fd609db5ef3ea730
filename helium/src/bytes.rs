//! Bytes: copied, filled and limited, 16 at once.

use core::arch::naked_asm;

/// Lines of a rectangle that are copied.
#[repr(C)]
pub(crate) struct Lines {
    /// Bytes of a line, at least 1.
    pub(crate) bytes: usize,
    /// Number of lines, at least 1.
    pub(crate) count: usize,
    /// Bytes from the beginning of a line to that of the next one in the source.
    pub(crate) source: usize,
    /// The same in the destination.
    pub(crate) destination: usize,
}

/// Copies lines.
///
/// # Safety
///
/// `from` and `to` must be valid for all bytes of the lines, which do not overlap. All fields of `lines` are below `i32::MAX`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn copy(lines: &Lines, from: *const i8, to: *mut i8) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r4, r5, r6, lr}}",
        "ldm r0, {{r3, r4, r5, r6}}",
        // The distances after the bytes that the loop takes.
        "add r0, r3, #15",
        "bic r0, r0, #15",
        "subs r5, r5, r0",
        "subs r6, r6, r0",
        "1:",
        "dlstp.8 lr, r3",
        "2:",
        "vldrb.u8 q0, [r1], #16",
        "vstrb.8 q0, [r2], #16",
        "letp lr, 2b",
        "add r1, r5",
        "add r2, r6",
        "subs r4, #1",
        "bne 1b",
        "pop {{r4, r5, r6, pc}}",
    )
}

/// Fills `count` bytes with `value`.
///
/// # Safety
///
/// `to` must be valid for `count` bytes.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn fill(to: *mut i8, count: usize, value: i32) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r7, lr}}",
        "vdup.8 q0, r2",
        "wlstp.8 lr, r1, 2f",
        "1:",
        "vstrb.8 q0, [r0], #16",
        "letp lr, 1b",
        "2:",
        "pop {{r7, pc}}",
    )
}

/// Limits the results to the range that an activation leaves.
pub(crate) fn limit(results: &mut [i8], [least, greatest]: [i32; 2]) {
    if least > -128 || greatest < 127 {
        // SAFETY: the bytes are those of the slice.
        unsafe { limit_bytes(results.as_mut_ptr(), results.len(), least, greatest) }
    }
}

/// Limits `count` bytes.
///
/// # Safety
///
/// `at` must be valid for `count` bytes.
#[unsafe(naked)]
unsafe extern "C" fn limit_bytes(at: *mut i8, count: usize, least: i32, greatest: i32) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r7, lr}}",
        "vdup.8 q1, r2",
        "vdup.8 q2, r3",
        "wlstp.8 lr, r1, 2f",
        "1:",
        "vldrb.u8 q0, [r0]",
        "vmax.s8 q0, q0, q1",
        "vmin.s8 q0, q0, q2",
        "vstrb.8 q0, [r0], #16",
        "letp lr, 1b",
        "2:",
        "pop {{r7, pc}}",
    )
}
