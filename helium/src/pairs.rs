//! Two operands, each scaled: their sum or difference, or its square, four elements at once.

use crate::assembly::twice;
use core::arch::naked_asm;
use gradlet_core::custom_op::broadcast::Order;
use gradlet_core::ops::Multiplier;

/// Numbers of a formula, for operands x and y.
#[repr(C)]
pub(crate) struct Numbers {
    /// Negative exponents of the multipliers of x, of y and of the result, or 0, in each lane.
    right_shifts: [[i32; 4]; 3],
    /// Least and greatest result, in each lane.
    range: [[i32; 4]; 2],
    /// Of each operand: the number that is added, the shift to the left, and the mantissa of the multiplier.
    terms: [[i32; 3]; 2],
    /// Of each operand: 1, or -1 for one that is subtracted.
    signs: [i32; 2],
    /// Of the result: the shift to the left, and the mantissa of the multiplier.
    result: [i32; 2],
    /// Zero point of the result.
    zero: i32,
}

/// The inputs of an op: what belongs to the first and to the second.
pub(crate) struct Inputs {
    pub(crate) zero_points: [i32; 2],
    pub(crate) multipliers: [Multiplier; 2],
    /// 1, or -1 for an input that is subtracted.
    pub(crate) signs: [i32; 2],
    /// Bits by which elements are shifted to the left.
    pub(crate) shift: i32,
}

impl Numbers {
    /// Returns the numbers of an op. `output` is the zero point of the result, and its least and greatest element.
    pub(crate) fn new(order: Order, inputs: &Inputs, result: Multiplier, output: [i32; 3]) -> Numbers {
        let ([p, q], [x, y]) = (order.of(inputs.zero_points), order.of(inputs.multipliers));
        let term = |zero_point: i32, multiplier: Multiplier| [-zero_point, inputs.shift + multiplier.exponent.max(0), multiplier.value];
        let [zero, least, greatest] = output;
        Numbers {
            right_shifts: [x, y, result].map(|multiplier| [multiplier.exponent.min(0); 4]),
            range: [[least; 4], [greatest; 4]],
            terms: [term(p, x), term(q, y)],
            signs: order.of(inputs.signs),
            result: [result.exponent.max(0), result.value],
            zero,
        }
    }
}

/// Defines a function that replaces the elements of `x` with results. `$combined` changes q0, the sum of the scaled operands.
macro_rules! function {
    ($(#[$doc:meta])* $name:ident, $combined:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// `x` and `y` must be valid for `count` elements, and must not overlap.
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name(numbers: &Numbers, x: *mut i8, y: *const i8, count: usize) {
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
                $combined,
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
    };
}

function! {
    /// Computes sums, or differences.
    sums, ""
}
function! {
    /// Computes squares of differences.
    squares, "vmul.i32 q0, q0, q0"
}
