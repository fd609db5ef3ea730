//! Settings of a device.

use super::Combine;
use gradlet_core::custom_op::Kernel;

/// Settings of a device on a GPU.
///
/// ```
/// use gradlet_cuda::Options;
/// let options = Options { memory_limit: Some(64 << 20), ..Options::default() };
/// assert!(options.memory_growth && !options.strict);
/// ```
#[derive(Clone, Copy)]
pub struct Options {
    /// The largest number of bytes that may be in use. A device with a limit takes all of them when it is created, so the limit is exact.
    pub memory_limit: Option<u64>,
    /// True if a device without a limit takes memory from the driver when a program needs it. False if it takes nearly all free memory when
    /// it is created.
    pub memory_growth: bool,
    /// True if products and sums in products of matrices, convolutions and pooling are rounded one after the other, as on a CPU. By default
    /// they become one instruction (FMA), which is faster and rounds once.
    pub strict: bool,
    /// True if products of f32 may round their operands to TF32, with 10 bits of mantissa, for tensor cores: TensorFlow's
    /// `enable_tensor_float_32_execution`. It holds from compute capability 8.0 on, unless the device is strict.
    pub tf32: bool,
    /// True if the device measures how fast its kernels compute a product or a convolution in different tiles and numbers of parts, and
    /// uses the fastest. cuBLASLt takes part in products if it is installed: see [`Driver::open_cublaslt`]. The first use of each shape
    /// then takes a moment, and memory for its operands in addition to `memory_limit`. If there is none, the device uses what it estimates
    /// to be the fastest, as it does by default. Two runs of a program may choose differently and then add in another order, unless they
    /// share their times by [`Driver::tuning`] and [`Driver::add_tuning`]. A strict device never does this.
    ///
    /// [`Driver::open_cublaslt`]: crate::Driver::open_cublaslt
    /// [`Driver::tuning`]: crate::Driver::tuning
    /// [`Driver::add_tuning`]: crate::Driver::add_tuning
    pub tune: bool,
    /// Size in bytes of the memory that kernels use for partial sums. It is taken at the first need, in addition to `memory_limit`. With 0,
    /// long sums of few results are computed by few threads.
    pub workspace: u64,
    /// True if the device is to have memory of the host that the GPU addresses, false if the GPU's own. `None`, the default, is true for
    /// integrated GPUs: a batch is then written where the kernels read it. Many integrated GPUs do not cache such memory; measure both.
    pub mapped: Option<bool>,
    /// Kernels of ops that run on the host, although their operands are in the GPU's memory: collective operations.
    pub host_kernels: &'static [Kernel],
    /// Function that combines the operands of collective operations on the GPUs. It must combine them, or return false, on all devices.
    /// Without it, or if it returns false, the operands are copied to the host and back, for `host_kernels`.
    pub combine: Option<Combine>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_limit: None,
            memory_growth: true,
            strict: false,
            tf32: false,
            tune: false,
            workspace: 8 << 20,
            mapped: None,
            host_kernels: &[],
            combine: None,
        }
    }
}
