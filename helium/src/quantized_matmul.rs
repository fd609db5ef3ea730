//! [`quantized_matmul`](gradlet_core::ops::quantized_matmul), a row of the result at a time, four or sixteen columns at once. A transposed
//! left operand has core's kernel.

use crate::assembly::{finish, twice};
use core::arch::naked_asm;
use gradlet_core::custom_op::{Call, broadcast};
pub use gradlet_core::ops::quantized_matmul::{Attributes, DEF};
use gradlet_core::{DType, Error, Kernel, Result, ops};

/// Kernel for i8.
pub static I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points: [zero, b_zero], output, multiplier, transposed } = call.attributes()?;
    if transposed[0] != 0 {
        return (ops::quantized_matmul::I8.run)(call);
    }
    let (a, b, y) = (call.input(0)?, call.input(1)?, call.output()?);
    let ([a_batch @ .., _, k], [b_batch @ .., _, _], [batch @ .., m, n]) = (a.dims(), b.dims(), y.dims()) else {
        return Err(Error::Rank { input: 0 });
    };
    let (m, n, k) = (*m as usize, *n as usize, *k as usize);
    let lines = y.data.len().checked_div(n).unwrap_or(0);
    let rows = call.rows(lines, cost(k, n));
    let (a, b, y) = (a.slice::<i8>(), b.slice::<i8>(), call.output()?.slice_mut::<i8>());
    let mut operands = Operands {
        right_shift: [multiplier.exponent.min(0); 4],
        range: [[output.least; 4], [output.greatest; 4]],
        k,
        n,
        zero,
        start: 0,
        product: [multiplier.exponent.max(0), multiplier.value],
        output_zero: output.zero_point,
    };
    for line in rows {
        let index = line / m.max(1);
        let a = a.get((broadcast::position(index, batch, a_batch) * m + line % m.max(1)) * k..).and_then(|a| a.get(..k));
        let b = b.get(broadcast::position(index, batch, b_batch) * k * n..).and_then(|b| b.get(..k * n));
        let y = y.get_mut(line * n..).and_then(|y| y.get_mut(..n));
        let (Some(a), Some(b), Some(y)) = (a, b, y) else { return Err(Error::Internal) };
        let sum = a.iter().fold(0i32, |sum, a| sum.wrapping_add(i32::from(*a) - zero));
        operands.start = sum.wrapping_mul(-b_zero);
        // SAFETY: the slices have `k`, `k · n` and `n` elements.
        unsafe {
            match transposed[1] {
                0 => columns(&operands, a.as_ptr(), b.as_ptr(), y.as_mut_ptr()),
                _ => dots(&operands, a.as_ptr(), b.as_ptr(), y.as_mut_ptr()),
            }
        }
    }
    Ok(())
}

/// Returns the cost of a row of `n` results, in instructions. Four columns take as long as one.
fn cost(k: usize, n: usize) -> usize {
    let dots = n.next_multiple_of(4).saturating_mul(k.saturating_mul(2).saturating_add(30));
    dots.saturating_add(k.saturating_mul(5)).saturating_add(300)
}

/// Operands of a row of the result.
#[repr(C)]
struct Operands {
    /// Negative exponent of the multiplier, or 0, in each lane.
    right_shift: [i32; 4],
    /// Least and greatest result, in each lane.
    range: [[i32; 4]; 2],
    /// Elements of a row of a, and of a row of the result, at least 1.
    k: usize,
    n: usize,
    /// Zero point of a.
    zero: i32,
    /// The first value of a sum: what the zero point of b adds.
    start: i32,
    /// Of the product: the shift to the left, and the mantissa of the multiplier.
    product: [i32; 2],
    /// Zero point of the result.
    output_zero: i32,
}

/// Computes a row of the result, of a row of a and the rows of b.
///
/// # Safety
///
/// `a` must be valid for `k` elements, `b` for `k · n`, and `y` for `n`.
#[unsafe(naked)]
unsafe extern "C" fn columns(operands: &Operands, a: *const i8, b: *const i8, y: *mut i8) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}",
        "vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "vldrw.u32 q4, [r0]",
        "vldrw.u32 q5, [r0, #16]",
        "vldrw.u32 q6, [r0, #32]",
        "add r0, r0, #48",
        "ldm r0, {{r0, r4, r5, r6, r7, r8, r9}}",
        "push {{r6}}",
        "mov r10, r3",
        // r0: k, r4: n, r12: columns that are left. The first value of a sum is on the stack.
        "mov r12, r4",
        "subs r12, r12, #16",
        "blt 4f",
        // Sixteen columns.
        "1:",
        "ldr r6, [sp]",
        "vdup.32 q0, r6",
        "vdup.32 q1, r6",
        "vdup.32 q2, r6",
        "vdup.32 q3, r6",
        "mov r3, r2",
        "mov r11, r1",
        "wls lr, r0, 3f",
        "2:",
        "vldrb.s32 q7, [r3]",
        "ldrsb r6, [r11], #1",
        "sub r6, r6, r5",
        "vmla.s32 q0, q7, r6",
        "vldrb.s32 q7, [r3, #4]",
        "vmla.s32 q1, q7, r6",
        "vldrb.s32 q7, [r3, #8]",
        "vmla.s32 q2, q7, r6",
        "vldrb.s32 q7, [r3, #12]",
        "vmla.s32 q3, q7, r6",
        "add r3, r4",
        "le lr, 2b",
        "3:",
        finish!("q0"),
        finish!("q1"),
        finish!("q2"),
        finish!("q3"),
        "mov r3, r10",
        "vstrb.32 q0, [r3], #4",
        "vstrb.32 q1, [r3], #4",
        "vstrb.32 q2, [r3], #4",
        "vstrb.32 q3, [r3], #4",
        "mov r10, r3",
        "add r2, #16",
        "subs r12, r12, #16",
        "bge 1b",
        "4:",
        "adds r12, #16",
        "beq 8f",
        // Up to four columns.
        "5:",
        "ldr r6, [sp]",
        "vdup.32 q0, r6",
        "mov r3, r2",
        "mov r11, r1",
        "vctp.32 r12",
        "wls lr, r0, 7f",
        "6:",
        "vpst",
        "vldrbt.s32 q7, [r3]",
        "ldrsb r6, [r11], #1",
        "sub r6, r6, r5",
        "vmla.s32 q0, q7, r6",
        "add r3, r4",
        "le lr, 6b",
        "7:",
        finish!("q0"),
        "mov r3, r10",
        "vpst",
        "vstrbt.32 q0, [r3]",
        "add r10, #4",
        "add r2, #4",
        "subs r12, #4",
        "bgt 5b",
        "8:",
        "add sp, #4",
        "vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}",
    )
}

/// Computes a row of the result, of a row of a and the columns of b, which is transposed.
///
/// # Safety
///
/// `a` must be valid for `k` elements, `b` for `k · n`, and `y` for `n`.
#[unsafe(naked)]
unsafe extern "C" fn dots(operands: &Operands, a: *const i8, b: *const i8, y: *mut i8) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}",
        "vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "vldrw.u32 q4, [r0]",
        "vldrw.u32 q5, [r0, #16]",
        "vldrw.u32 q6, [r0, #32]",
        "add r0, r0, #48",
        "ldm r0, {{r4, r5, r6, r7, r8, r9, r10}}",
        // The zero point of a is taken off by two numbers that are bytes.
        "rsb r6, r6, #0",
        "asr r11, r6, #1",
        "sub r6, r6, r11",
        "vdup.8 q2, r11",
        "vdup.8 q3, r6",
        // k, columns that are left, the first value of a sum, shift, mantissa, zero point, a, b, y.
        "sub sp, #36",
        "strd r4, r5, [sp]",
        "strd r7, r8, [sp, #8]",
        "strd r9, r10, [sp, #16]",
        "strd r1, r2, [sp, #24]",
        "str r3, [sp, #32]",
        // Up to four columns. A column after the last one is the last one.
        "1:",
        "ldrd r8, r7, [sp]",
        "ldr r5, [sp, #28]",
        "mov r9, r5",
        "cmp r7, #1",
        "it gt",
        "addgt r9, r8",
        "mov r10, r9",
        "cmp r7, #2",
        "it gt",
        "addgt r10, r8",
        "mov r11, r10",
        "cmp r7, #3",
        "it gt",
        "addgt r11, r8",
        "add r12, r5, r8, lsl #2",
        "str r12, [sp, #28]",
        "ldr r0, [sp, #8]",
        "ldr r1, [sp, #24]",
        "mov r2, r0",
        "mov r4, r0",
        "mov r6, r0",
        "wlstp.8 lr, r8, 3f",
        "2:",
        "vldrb.u8 q0, [r1], #16",
        "vldrb.u8 q1, [r5], #16",
        "vmladava.s8 r0, q0, q1",
        "vmladava.s8 r0, q2, q1",
        "vmladava.s8 r0, q3, q1",
        "vldrb.u8 q1, [r9], #16",
        "vmladava.s8 r2, q0, q1",
        "vmladava.s8 r2, q2, q1",
        "vmladava.s8 r2, q3, q1",
        "vldrb.u8 q1, [r10], #16",
        "vmladava.s8 r4, q0, q1",
        "vmladava.s8 r4, q2, q1",
        "vmladava.s8 r4, q3, q1",
        "vldrb.u8 q1, [r11], #16",
        "vmladava.s8 r6, q0, q1",
        "vmladava.s8 r6, q2, q1",
        "vmladava.s8 r6, q3, q1",
        "letp lr, 2b",
        "3:",
        "vmov q0[2], q0[0], r0, r4",
        "vmov q0[3], q0[1], r2, r6",
        "ldrd r7, r8, [sp, #12]",
        "ldr r9, [sp, #20]",
        finish!("q0"),
        "ldr r12, [sp, #4]",
        "ldr r3, [sp, #32]",
        "vctp.32 r12",
        "vpst",
        "vstrbt.32 q0, [r3]",
        "add r3, #4",
        "subs r12, #4",
        "str r12, [sp, #4]",
        "str r3, [sp, #32]",
        "bgt 1b",
        "add sp, #36",
        "vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}",
    )
}
