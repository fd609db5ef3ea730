//! [`quantized_add`](gradlet_core::ops::quantized_add) of tensors with the same shape, four elements at once. Other shapes have core's
//! kernel.

use core::arch::naked_asm;
use gradlet_core::custom_op::Call;
pub use gradlet_core::ops::quantized_add::{Attributes, DEF};
use gradlet_core::{DType, Error, Kernel, Result, ops};

/// Elements of a row of the work.
const ROW: usize = 16;
/// Bits by which operands are shifted to the left.
const SHIFT: i32 = 20;

/// Kernel for i8.
pub static I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points, output, operands: [left, right], sum, subtract } = call.attributes()?;
    let (a, b) = (call.input(0)?, call.input(1)?);
    if a.dims() != b.dims() {
        return (ops::quantized_add::I8.run)(call);
    }
    let length = call.output()?.data.len();
    let rows = call.rows(length.div_ceil(ROW), 8 * ROW);
    let (start, end) = (rows.start * ROW, length.min(rows.end * ROW));
    let y = call.output()?.slice_mut::<i8>().as_mut_ptr();
    // The assembly relies on these sizes. An operand may share the bytes of the result.
    if [a, b].iter().any(|operand| operand.data.is_some_and(|data| data.len() != length)) {
        return Err(Error::Internal);
    }
    let elements = |operand: Option<&[u8]>| operand.map_or(y.cast_const(), |data| data.as_ptr().cast::<i8>()).wrapping_add(start);
    let operands = Operands {
        right_shifts: [left, right, sum].map(|multiplier| [multiplier.exponent.min(0); 4]),
        range: [[output.least; 4], [output.greatest; 4]],
        count: end.saturating_sub(start),
        a: elements(a.data),
        b: elements(b.data),
        y: y.wrapping_add(start),
        left: [-zero_points[0], SHIFT + left.exponent.max(0), left.value],
        right: [-zero_points[1], SHIFT + right.exponent.max(0), right.value],
        sign: if subtract == 0 { 1 } else { -1 },
        sum: [sum.exponent.max(0), sum.value],
        zero: output.zero_point,
    };
    // SAFETY: operands and result have `count` elements from `start` on.
    unsafe { add(&operands) }
    Ok(())
}

/// Operands of the assembly.
#[repr(C)]
struct Operands {
    /// Negative exponents of the multipliers, or 0, in each lane.
    right_shifts: [[i32; 4]; 3],
    /// Least and greatest result, in each lane.
    range: [[i32; 4]; 2],
    count: usize,
    a: *const i8,
    b: *const i8,
    y: *mut i8,
    /// Of each operand: the number that is added, the shift to the left, and the mantissa of the multiplier.
    left: [i32; 3],
    right: [i32; 3],
    /// 1 for the sum, -1 for the difference.
    sign: i32,
    /// Of the sum: the shift to the left, and the mantissa of the multiplier.
    sum: [i32; 2],
    /// Zero point of the result.
    zero: i32,
}

/// Rounds the product of `$x` and the mantissa `$mantissa`, and then its quotient by the power of two with the negative exponent `$shift`,
/// with ties away from zero: negative numbers become one less, unless they are not shifted. Changes q2.
#[rustfmt::skip]
macro_rules! twice {
    ($x:literal, $mantissa:literal, $shift:literal) => {
        concat!(
            "vqrdmulh.s32 ", $x, ", ", $x, ", ", $mantissa,
            "\nvand q2, ", $x, ", ", $shift,
            "\nvshr.s32 q2, q2, #31",
            "\nvqadd.s32 ", $x, ", ", $x, ", q2",
            "\nvrshl.s32 ", $x, ", ", $x, ", ", $shift,
        )
    };
}

/// Computes all elements.
///
/// # Safety
///
/// The operands must be valid for `count` elements. `a` and `b` may be `y`, but they must not overlap it otherwise.
#[unsafe(naked)]
unsafe extern "C" fn add(operands: &Operands) {
    naked_asm!(
        ".cpu cortex-m55",
        "push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}",
        "vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "vldrw.u32 q3, [r0]",
        "vldrw.u32 q4, [r0, #16]",
        "vldrw.u32 q5, [r0, #32]",
        "vldrw.u32 q6, [r0, #48]",
        "vldrw.u32 q7, [r0, #64]",
        "ldr lr, [r0, #80]",
        "add r0, r0, #84",
        "ldm r0, {{r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12}}",
        "wlstp.32 lr, lr, 2f",
        "1:",
        "vldrb.s32 q0, [r0], #4",
        "vadd.i32 q0, q0, r3",
        "vshl.s32 q0, r4",
        twice!("q0", "r5", "q3"),
        "vldrb.s32 q1, [r1], #4",
        "vadd.i32 q1, q1, r6",
        "vshl.s32 q1, r7",
        twice!("q1", "r8", "q4"),
        "vmla.s32 q0, q1, r9",
        "vshl.s32 q0, r10",
        twice!("q0", "r11", "q5"),
        "vadd.i32 q0, q0, r12",
        "vmax.s32 q0, q0, q6",
        "vmin.s32 q0, q0, q7",
        "vstrb.32 q0, [r2], #4",
        "letp lr, 1b",
        "2:",
        "vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}",
        "pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}",
    )
}
