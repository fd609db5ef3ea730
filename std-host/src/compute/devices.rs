//! Devices of the host.

use super::collective::all_reduce;
use gradlet_core::custom_op::Kernel;
use gradlet_core::device::Cpu;
use gradlet_core::{Device, ops};
use gradlet_cpu::{Host, Team, Threads};
use std::sync::LazyLock;

/// All kernels, the fast ones before the portable ones.
static KERNELS: LazyLock<Vec<&Kernel>> = LazyLock::new(|| gradlet_cpu::kernels().chain(PORTABLE.iter().copied()).collect());

/// The portable kernels, and those of replicas.
static PORTABLE: LazyLock<Vec<&Kernel>> = LazyLock::new(|| ops::KERNELS.iter().copied().chain(all_reduce::KERNELS).collect());

/// Returns the CPU with fast kernels. They use its vector instructions and several threads: as many as `GRADLET_NUM_THREADS`
/// specifies, by default the number of cores. Their results differ by rounding from those of [`portable_cpu`].
///
/// ```
/// use gradlet::Tensor;
/// let device = gradlet::cpu();
/// assert_eq!(Tensor::scalar(&device, 2.0f32).neg()?.item::<f32>()?, -2.0);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn cpu() -> Device {
    static CPU: LazyLock<Device> = LazyLock::new(|| Device::new(Host::new(Cpu::new("CPU:0", &KERNELS), Threads::All)));
    CPU.clone()
}

/// Returns the CPU with the portable kernels, whose results have the same bits on every microcontroller.
pub fn portable_cpu() -> Device {
    static CPU: LazyLock<Device> = LazyLock::new(|| Device::new(Host::new(Cpu::new("portable CPU:0", ops::KERNELS), Threads::One)));
    CPU.clone()
}

/// Returns a logical CPU with this name and number of threads. The only one of a context, with all threads, is the CPU itself.
pub(crate) fn logical_cpu(name: &str, portable: bool, threads: usize, only: bool) -> Device {
    if only && !portable && threads == gradlet_cpu::threads() {
        return cpu();
    }
    let kernels: &'static [&'static Kernel] = if portable { &PORTABLE } else { &KERNELS };
    let threads = if portable { Threads::One } else { Threads::Own(Team::new(threads)) };
    Device::new(Host::new(Cpu::new(name, kernels), threads))
}
