//! Fast kernels for floats, which use vector instructions and all cores. They compute sums in a different order than the portable kernels,
//! and some functions by other formulas, so results differ by rounding. In rare cases they call the portable kernel. The kernels for
//! quantised tensors have the portable bits.

mod avg_pool2d;
mod broadcast;
mod conv2d;
mod depthwise;
mod elementwise;
mod math;
mod matmul;
mod max_pool2d;
mod product;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod quantized;
mod reduce;
mod scratch;
mod softmax;
mod steps;
#[cfg(test)]
mod testing;
mod window;

use gradlet_core::Result;
use gradlet_core::custom_op::{Call, Kernel};

static FAST: &[&Kernel] = &[
    &conv2d::CONV2D,
    &conv2d::INPUT_GRAD,
    &conv2d::FILTER_GRAD,
    &matmul::MATMUL,
    &matmul::DENSE,
    &max_pool2d::MAX_POOL2D,
    &max_pool2d::MAX_POOL2D_GRAD,
    &steps::MATMUL_ADAM,
    &steps::MATMUL_SGD,
];

static TABLES: &[&[Kernel]] = &[
    &avg_pool2d::AVG_POOL2D,
    &avg_pool2d::AVG_POOL2D_GRAD,
    &depthwise::DEPTHWISE_CONV2D,
    &depthwise::INPUT_GRAD,
    &depthwise::FILTER_GRAD,
    elementwise::SINGLE,
    elementwise::DOUBLE,
    &elementwise::PERIODIC,
    #[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
    &quantized::KERNELS,
    &reduce::SINGLE,
    &reduce::DOUBLE,
    &softmax::SINGLE,
    &softmax::DOUBLE,
    &steps::ADAM_STEP,
    &steps::SGD_STEP,
];

/// Returns the fast kernels. A device looks for a kernel from the start of its list, so they stand before the portable ones.
pub fn kernels() -> impl Iterator<Item = &'static Kernel> {
    FAST.iter().copied().chain(TABLES.iter().copied().flatten())
}

/// Runs `kernel`, a portable kernel, in place of the fast kernel that was called.
fn portable(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    (kernel.run)(call)
}
