//! [`quantized_add`](gradlet_core::ops::quantized_add), four elements at once.

use crate::assembly::twice;
use core::arch::naked_asm;
use gradlet_core::custom_op::Call;
use gradlet_core::custom_op::broadcast::{self, Order};
pub use gradlet_core::ops::quantized_add::{Attributes, DEF};
use gradlet_core::{DType, Kernel, Result};

/// Bits by which operands are shifted to the left.
const SHIFT: i32 = 20;

/// Kernel for i8.
pub static I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points, output, operands, sum, subtract } = call.attributes()?;
    let order = Order::new(call)?;
    let (zero_points, operands) = (order.of(zero_points), order.of(operands));
    let term = |at: usize| [-zero_points[at], SHIFT + operands[at].exponent.max(0), operands[at].value];
    let numbers = Numbers {
        right_shifts: [operands[0], operands[1], sum].map(|multiplier| [multiplier.exponent.min(0); 4]),
        range: [[output.least; 4], [output.greatest; 4]],
        terms: [term(0), term(1)],
        signs: order.of([1, if subtract == 0 { 1 } else { -1 }]),
        sum: [sum.exponent.max(0), sum.value],
        zero: output.zero_point,
    };
    broadcast::rows(call, order, 25, &|x: &mut [i8], y| {
        // SAFETY: x and y have this many elements.
        unsafe { add(&numbers, x.as_mut_ptr(), y.as_ptr(), x.len().min(y.len())) }
    })
}

/// Numbers of the formula, for operands x and y.
#[repr(C)]
struct Numbers {
    /// Negative exponents of the multipliers, or 0, in each lane.
    right_shifts: [[i32; 4]; 3],
    /// Least and greatest result, in each lane.
    range: [[i32; 4]; 2],
    /// Of each operand: the number that is added, the shift to the left, and the mantissa of the multiplier.
    terms: [[i32; 3]; 2],
    /// Of each operand: 1, or -1 for one that is subtracted.
    signs: [i32; 2],
    /// Of the sum: the shift to the left, and the mantissa of the multiplier.
    sum: [i32; 2],
    /// Zero point of the result.
    zero: i32,
}

/// Replaces the elements of `x` with results.
///
/// # Safety
///
/// `x` and `y` must be valid for `count` elements, and must not overlap.
#[unsafe(naked)]
unsafe extern "C" fn add(numbers: &Numbers, x: *mut i8, y: *const i8, count: usize) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}",
        "vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "mov lr, r3",
        "vldrw.u32 q3, [r0]",
        "vldrw.u32 q4, [r0, #16]",
        "vldrw.u32 q5, [r0, #32]",
        "vldrw.u32 q6, [r0, #48]",
        "vldrw.u32 q7, [r0, #64]",
        "add r0, r0, #80",
        "ldm r0!, {{r3, r4, r5, r6, r7, r8, r9, r10, r11, r12}}",
        // The last number has the register of the address.
        "ldr r0, [r0]",
        "wlstp.32 lr, lr, 2f",
        "1:",
        "vldrb.s32 q0, [r1]",
        "vadd.i32 q0, q0, r3",
        "vshl.s32 q0, r4",
        twice!("q0", "r5", "q3", "q2"),
        "vmul.i32 q0, q0, r9",
        "vldrb.s32 q1, [r2], #4",
        "vadd.i32 q1, q1, r6",
        "vshl.s32 q1, r7",
        twice!("q1", "r8", "q4", "q2"),
        "vmla.s32 q0, q1, r10",
        "vshl.s32 q0, r11",
        twice!("q0", "r12", "q5", "q2"),
        "vadd.i32 q0, q0, r0",
        "vmax.s32 q0, q0, q6",
        "vmin.s32 q0, q0, q7",
        "vstrb.32 q0, [r1], #4",
        "letp lr, 1b",
        "2:",
        "vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}",
    )
}
