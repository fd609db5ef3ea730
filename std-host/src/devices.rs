//! The host's devices.

use crate::{kernels, team};
use gradlet_core::device::{Backend, Cpu};
use gradlet_core::op::{Call, Kernel, OpDef};
pub use gradlet_core::ops::portable_cpu;
use gradlet_core::sync::Task;
use gradlet_core::{DType, Device, Result};
use std::sync::LazyLock;

/// The CPU, with kernels for its vectors and cores (as many as `GRADLET_NUM_THREADS` says, or all). Their results differ by
/// rounding from those of [`portable_cpu`], which gives the bits of every microcontroller.
///
/// ```
/// use gradlet::Tensor;
/// let device = gradlet::cpu();
/// assert_eq!(Tensor::scalar(&device, 2.0f32).neg()?.item::<f32>()?, -2.0);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn cpu() -> Device {
    static CPU: LazyLock<Device> = LazyLock::new(|| Device::new(Host(Cpu::new("CPU:0", &kernels::KERNELS))));
    CPU.clone()
}

struct Host(Cpu);

impl Backend for Host {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        self.0.run(def, call)
    }

    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.0.has_kernel(def, dtype)
    }

    fn kernels(&self) -> &[&'static Kernel] {
        self.0.kernels()
    }

    fn threads(&self) -> usize {
        team::threads()
    }

    fn join(&self, tasks: &mut [&mut Task<'_>]) {
        team::each(true, tasks.iter_mut(), |task| task());
    }

    fn pause(&self) {
        std::thread::yield_now();
    }
}
