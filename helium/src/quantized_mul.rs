//! [`quantized_mul`](gradlet_core::ops::quantized_mul), four elements at once.

use crate::assembly::twice;
use core::arch::naked_asm;
use gradlet_core::custom_op::Call;
use gradlet_core::custom_op::broadcast::{self, Order};
pub use gradlet_core::ops::quantized_mul::{Attributes, DEF};
use gradlet_core::{DType, Kernel, Result};

/// Kernel for i8.
pub static I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points, output, multiplier } = call.attributes()?;
    let order = Order::new(call)?;
    let numbers = Numbers {
        right_shift: [multiplier.exponent.min(0); 4],
        range: [[output.least; 4], [output.greatest; 4]],
        terms: order.of(zero_points.map(|zero_point| -zero_point)),
        product: [multiplier.exponent.max(0), multiplier.value],
        zero: output.zero_point,
    };
    broadcast::rows(call, order, 20, &|x: &mut [i8], y| {
        // SAFETY: x and y have this many elements.
        unsafe { mul(&numbers, x.as_mut_ptr(), y.as_ptr(), x.len().min(y.len())) }
    })
}

/// Numbers of the formula, for operands x and y.
#[repr(C)]
struct Numbers {
    /// Negative exponent of the multiplier, or 0, in each lane.
    right_shift: [i32; 4],
    /// Least and greatest result, in each lane.
    range: [[i32; 4]; 2],
    /// The numbers that are added to the operands.
    terms: [i32; 2],
    /// Of the product: the shift to the left, and the mantissa of the multiplier.
    product: [i32; 2],
    /// Zero point of the result.
    zero: i32,
}

/// Replaces the elements of `x` with results.
///
/// # Safety
///
/// `x` and `y` must be valid for `count` elements, and must not overlap.
#[unsafe(naked)]
unsafe extern "C" fn mul(numbers: &Numbers, x: *mut i8, y: *const i8, count: usize) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r4, r5, r6, r7, r8, lr}}",
        "vpush {{d8, d9, d10, d11}}",
        "mov lr, r3",
        "vldrw.u32 q3, [r0]",
        "vldrw.u32 q4, [r0, #16]",
        "vldrw.u32 q5, [r0, #32]",
        "add r0, r0, #48",
        "ldm r0, {{r4, r5, r6, r7, r8}}",
        "wlstp.32 lr, lr, 2f",
        "1:",
        "vldrb.s32 q0, [r1]",
        "vldrb.s32 q1, [r2], #4",
        "vadd.i32 q0, q0, r4",
        "vadd.i32 q1, q1, r5",
        "vmul.i32 q0, q0, q1",
        "vshl.s32 q0, r6",
        twice!("q0", "r7", "q3", "q2"),
        "vadd.i32 q0, q0, r8",
        "vmax.s32 q0, q0, q4",
        "vmin.s32 q0, q0, q5",
        "vstrb.32 q0, [r1], #4",
        "letp lr, 1b",
        "2:",
        "vpop {{d8, d9, d10, d11}}",
        "pop {{r4, r5, r6, r7, r8, pc}}",
    )
}
