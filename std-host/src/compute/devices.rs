//! The host's devices.

use crate::compute::{kernels, team};
use gradlet_core::device::{Backend, Cpu};
use gradlet_core::op::{Call, Kernel, OpDef};
use gradlet_core::sync::Task;
use gradlet_core::{DType, Device, Result, ops};
use std::fmt;
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};

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
    static CPU: LazyLock<Device> = LazyLock::new(|| Device::new(Host::new(Cpu::new("CPU:0", &kernels::KERNELS), team::threads)));
    CPU.clone()
}

/// The CPU with the portable kernels, which give the bits of every microcontroller.
pub fn portable_cpu() -> Device {
    static CPU: LazyLock<Device> = LazyLock::new(|| Device::new(Host::new(Cpu::new("portable CPU:0", ops::KERNELS), || 1)));
    CPU.clone()
}

/// A CPU that prints to standard output, and warns on standard error.
struct Host {
    cpu: Cpu,
    threads: fn() -> usize,
    /// Where threads sleep that wait for others.
    bed: Mutex<()>,
    bell: Condvar,
}

/// How often a thread looks before it sleeps: most waits are shorter than falling asleep.
const LOOKS: usize = 64;

impl Host {
    fn new(cpu: Cpu, threads: fn() -> usize) -> Host {
        Host { cpu, threads, bed: Mutex::new(()), bell: Condvar::new() }
    }
}

impl Backend for Host {
    fn name(&self) -> &str {
        self.cpu.name()
    }

    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        self.cpu.run(def, call)
    }

    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.cpu.has_kernel(def, dtype)
    }

    fn kernels(&self) -> &[&'static Kernel] {
        self.cpu.kernels()
    }

    fn threads(&self) -> usize {
        (self.threads)()
    }

    fn join(&self, tasks: &mut [&mut Task<'_>]) {
        team::each(self.threads() > 1, tasks.iter_mut(), |task| task());
    }

    fn print(&self, text: fmt::Arguments<'_>) {
        print!("{text}");
    }

    fn warn(&self, text: fmt::Arguments<'_>) {
        eprint!("{text}");
    }

    fn wait(&self, ready: &mut dyn FnMut() -> bool) {
        for _ in 0..LOOKS {
            if ready() {
                return;
            }
            std::thread::yield_now();
        }
        // Who wakes comes to the bed first: so nobody falls asleep between an answer and the wake that it asked for.
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        while !ready() {
            bed = self.bell.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_all();
    }
}
