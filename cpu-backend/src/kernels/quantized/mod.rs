//! Fast kernels for quantised tensors of i8. They have the bits of the portable kernels, because sums of integers do not depend on the
//! order. Without a [set of instructions](IntegerSet) for integers, the portable kernels run.
//!
//! On x86-64, a product of bytes has one factor without a sign. The elements of x get the [`OFFSET`] 128 added, which the start of each sum
//! makes up for, as it does for the zero point: `Σ (x − x₀) · f = Σ (x + 128) · f − (128 + x₀) · Σ f`. On aarch64, the offset is 0.

mod add;
mod channels;
mod conv2d;
mod dense;
mod depthwise;
mod field;
mod matmul;
mod mul;
mod pairs;
mod squared_difference;
#[cfg(test)]
mod tests;

use super::portable;
use crate::simd::integers::{IntegerSet, OFFSET};
use gradlet_core::DType;
use gradlet_core::custom_op::Kernel;
use gradlet_core::ops::{quantized_add, quantized_conv2d, quantized_dense, quantized_depthwise_conv2d};
use gradlet_core::ops::{quantized_matmul, quantized_mul, quantized_squared_difference};

/// Kernels of ops on quantised tensors.
pub static KERNELS: [Kernel; 7] = [
    Kernel { def: &quantized_conv2d::DEF, dtype: DType::I8, run: |call| conv2d::run(call, IntegerSet::best()) },
    Kernel { def: &quantized_depthwise_conv2d::DEF, dtype: DType::I8, run: |call| depthwise::run(call, IntegerSet::best()) },
    Kernel { def: &quantized_dense::DEF, dtype: DType::I8, run: |call| dense::run(call, IntegerSet::best()) },
    Kernel { def: &quantized_matmul::DEF, dtype: DType::I8, run: |call| matmul::run(call, IntegerSet::best()) },
    Kernel { def: &quantized_add::DEF, dtype: DType::I8, run: |call| add::run(call, for_pairs()) },
    Kernel { def: &quantized_mul::DEF, dtype: DType::I8, run: |call| mul::run(call, for_pairs()) },
    Kernel { def: &quantized_squared_difference::DEF, dtype: DType::I8, run: |call| squared_difference::run(call, for_pairs()) },
];

/// Returns the set for functions of pairs of elements. NEON takes more instructions for a sum than the portable kernel, which the compiler
/// vectorises.
fn for_pairs() -> Option<IntegerSet> {
    IntegerSet::best().filter(|_| cfg!(target_arch = "x86_64"))
}

/// Four bytes of value 1.
const ONES: i32 = 0x0101_0101;
/// Multiple of all lengths of vectors.
const LINE: usize = 16;
