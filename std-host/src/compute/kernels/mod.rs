//! Fast kernels for f32: vectors, all cores, and sums in another order than that of the portable kernels, so results differ from
//! theirs by rounding. What is rare goes to the portable kernel.

mod conv2d;
mod matmul;
mod max_pool2d;
mod product;
mod scratch;
mod steps;
#[cfg(test)]
mod testing;
mod window;

use gradlet_core::op::{Call, Kernel};
use gradlet_core::{Result, ops};
use std::sync::LazyLock;

static FAST: &[&Kernel] = &[
    &conv2d::CONV2D,
    &conv2d::INPUT_GRAD,
    &conv2d::FILTER_GRAD,
    &matmul::MATMUL,
    &matmul::DENSE,
    &max_pool2d::MAX_POOL2D,
    &max_pool2d::MAX_POOL2D_GRAD,
    &steps::ADAM_STEP,
    &steps::MATMUL_ADAM,
    &steps::MATMUL_SGD,
];

/// The fast kernels, then the portable ones.
pub(crate) static KERNELS: LazyLock<Vec<&'static Kernel>> = LazyLock::new(|| [FAST, ops::KERNELS].concat());

/// Lets the portable kernel compute.
fn portable(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    (kernel.run)(call)
}
