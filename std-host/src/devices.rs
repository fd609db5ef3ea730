//! The host's devices.

use gradlet_core::{Device, ops};

/// The CPU. It computes with the portable kernels, which give the same bits as every microcontroller.
///
/// ```
/// use gradlet::Tensor;
/// let device = gradlet::cpu();
/// assert_eq!(Tensor::scalar(&device, 2.0f32).neg()?.item::<f32>()?, -2.0);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn cpu() -> Device {
    ops::portable_cpu()
}
