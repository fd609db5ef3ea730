//! [`packed_dense`](gradlet_core::ops::packed_dense), four filters at once.
//!
//! The weights of four filters for one element of x are a word. A load takes them apart: 16 weights of each filter in a vector of their
//! own. The four sums then become the lanes of a vector, and one sequence of instructions converts them to results.

use crate::layout::{CHANNEL, LANES, split};
use core::arch::naked_asm;
use gradlet_core::custom_op::Call;
pub use gradlet_core::ops::packed_dense::{Attributes, DEF};
use gradlet_core::{DType, Error, Kernel, Result};

/// Filters of a word.
const FILTERS: usize = 4;

/// Kernel for i8.
pub static I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { filters, roundings, range } = call.attributes()?;
    let (x, filter, channels) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (words, k, n) = (filter.dim(0), filter.dim(1), filters as usize);
    let lines = call.output()?.data.len().checked_div(n).unwrap_or(0);
    let rows = call.rows(lines * words, 12 * k.div_ceil(LANES) + 60);
    if n == 0 {
        return Ok(());
    }
    let (x, filter, channels) = (x.slice::<i8>(), filter.slice::<i32>(), channels.slice::<i32>());
    let y = call.output()?.slice_mut::<i8>();
    // The assembly relies on these sizes.
    let whole = (x.len(), y.len()) == (lines * k, lines * n)
        && (filter.len(), channels.len()) == (words * k, words * FILTERS * CHANNEL)
        && words == n.div_ceil(FILTERS);
    if !whole {
        return Err(Error::Internal);
    }
    let mut row = rows.start;
    while row < rows.end {
        let (line, word) = split(row, words);
        let count = (words - word).min(rows.end - row);
        let first = word * FILTERS;
        let operands = Operands {
            x: x.as_ptr().wrapping_add(line * k),
            blocks: k / LANES,
            rest: k % LANES,
            least: range[0],
            greatest: range[1],
            once: usize::from(roundings == 1),
            filters: n.min(first + count * FILTERS) - first,
            weights: filter.as_ptr().wrapping_add(word * k),
            channels: channels.as_ptr().wrapping_add(first * CHANNEL),
            y: y.as_mut_ptr().wrapping_add(line * n + first),
        };
        // SAFETY: a line of x has `k` elements, each filter from `first` on too, and the line of y has the others from `first` on.
        unsafe { dense(&operands) }
        row += count;
    }
    Ok(())
}

/// Operands of a line, or of a part of one.
#[repr(C)]
struct Operands {
    x: *const i8,
    /// Whole vectors of a line of x, and elements after them.
    blocks: usize,
    rest: usize,
    least: i32,
    greatest: i32,
    /// 1 if the product with the multiplier is rounded once, or 0 if it is rounded twice.
    once: usize,
    /// Number of filters, at least 1.
    filters: usize,
    weights: *const i32,
    channels: *const i32,
    y: *mut i8,
}

/// Computes results of a line.
///
/// # Safety
///
/// The operands must have the sizes that [`Operands`] states.
#[unsafe(naked)]
unsafe extern "C" fn dense(operands: &Operands) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}",
        "vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "ldm r0!, {{r1, r2, r3, r4, r5, r6}}",
        "push {{r1, r2, r3, r4, r5, r6}}",
        "ldm r0, {{r9, r10, r11, r12}}",
        "vmov.i8 q5, #128",
        // Distances of words, for the elements after the whole vectors.
        "movs r0, #0",
        "vidup.u8 q6, r0, #4",
        // For each word of filters: a, b, c and d have their sums in r0, r2, r4 and r6. 128 was added to the weights of a and c.
        "1:",
        "ldrd r1, r3, [sp]",
        "ldr r7, [sp, #8]",
        "movs r0, #0",
        "movs r2, #0",
        "movs r4, #0",
        "movs r6, #0",
        "wls lr, r3, 3f",
        "2:",
        "vld40.8 {{q0, q1, q2, q3}}, [r10]",
        "vld41.8 {{q0, q1, q2, q3}}, [r10]",
        "vld42.8 {{q0, q1, q2, q3}}, [r10]",
        "vld43.8 {{q0, q1, q2, q3}}, [r10]!",
        "vldrb.u8 q4, [r1], #16",
        "veor q0, q0, q5",
        "vmladava.s8 r6, q4, q1",
        "veor q2, q2, q5",
        "vmladava.s8 r0, q4, q0",
        "vmladava.s8 r4, q4, q2",
        "vmladava.s8 r2, q4, q3",
        "le lr, 2b",
        "3:",
        "cbz r7, 5f",
        "mov r3, r10",
        "add r10, r10, r7, lsl #2",
        "dlstp.8 lr, r7",
        "4:",
        "vldrb.u8 q4, [r1]",
        "vldrb.u8 q0, [r3, q6]",
        "adds r3, #1",
        "vldrb.u8 q1, [r3, q6]",
        "adds r3, #1",
        "vldrb.u8 q2, [r3, q6]",
        "adds r3, #1",
        "vldrb.u8 q3, [r3, q6]",
        "veor q0, q0, q5",
        "veor q2, q2, q5",
        "vmladava.s8 r0, q4, q0",
        "vmladava.s8 r2, q4, q3",
        "vmladava.s8 r4, q4, q2",
        "vmladava.s8 r6, q4, q1",
        "letp lr, 4b",
        "5:",
        "vmov q0[2], q0[0], r0, r4",
        "vmov q0[3], q0[1], r2, r6",
        // Biases, multipliers, offsets and shifts.
        "vld40.32 {{q1, q2, q3, q4}}, [r11]",
        "vld41.32 {{q1, q2, q3, q4}}, [r11]",
        "vld42.32 {{q1, q2, q3, q4}}, [r11]",
        "vld43.32 {{q1, q2, q3, q4}}, [r11]!",
        "ldrd r0, r2, [sp, #12]",
        "ldr r3, [sp, #20]",
        "vshr.s32 q1, q1, #1",
        "vadd.i32 q0, q0, q1",
        "cbnz r3, 6f",
        "vqrdmulh.s32 q1, q0, q2",
        "vshr.s32 q0, q1, #31",
        "b 7f",
        // Rounded once, a negative product is one less before it loses its lower half: only a half of zeros makes a difference.
        "6:",
        "vqdmulh.s32 q1, q0, q2",
        "vmul.i32 q2, q0, q2",
        "vmov.i32 q0, #0",
        "vshl.i32 q2, q2, #1",
        "mvn r4, #0",
        "vptt.i32 eq, q2, zr",
        "vcmpt.s32 lt, q1, zr",
        "vdupt.32 q0, r4",
        "7:",
        "vadd.i32 q1, q1, q0",
        "vadd.i32 q1, q1, q3",
        "vneg.s32 q4, q4",
        "vshl.s32 q1, q1, q4",
        "vdup.32 q0, r0",
        "vmax.s32 q1, q1, q0",
        "vdup.32 q0, r2",
        "vmin.s32 q1, q1, q0",
        "mov r1, r12",
        "vctp.32 r9",
        "vpst",
        "vstrbt.32 q1, [r1]",
        "add r12, r12, #4",
        "subs r9, r9, #4",
        "bgt 1b",
        "add sp, sp, #24",
        "vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}",
    )
}
