//! Devices of the host.

use crate::compute::kernels;
use crate::compute::team::{self, Team};
use gradlet_core::custom_op::{Call, Kernel, OpDef};
use gradlet_core::device::{Backend, Cpu};
use gradlet_core::internal::sync::Task;
use gradlet_core::{DType, Device, Result, ops};
use std::fmt;
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};

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
    static CPU: LazyLock<Device> = LazyLock::new(|| Device::new(Host::new(Cpu::new("CPU:0", &kernels::KERNELS), Threads::All)));
    CPU.clone()
}

/// Returns the CPU with the portable kernels, whose results have the same bits on every microcontroller.
pub fn portable_cpu() -> Device {
    static CPU: LazyLock<Device> = LazyLock::new(|| Device::new(Host::new(Cpu::new("portable CPU:0", ops::KERNELS), Threads::One)));
    CPU.clone()
}

/// Returns a logical CPU with this name and number of threads. The only one of a context, with all threads, is the CPU itself.
pub(crate) fn logical_cpu(name: &str, portable: bool, threads: usize, only: bool) -> Device {
    if only && !portable && threads == team::threads() {
        return cpu();
    }
    let kernels: &'static [&'static Kernel] = if portable { &kernels::PORTABLE } else { &kernels::KERNELS };
    let threads = if portable { Threads::One } else { Threads::Own(Team::new(threads)) };
    Device::new(Host::new(Cpu::new(name, kernels), threads))
}

/// The threads on which a CPU runs its kernels.
enum Threads {
    One,
    /// All threads of the process.
    All,
    /// Threads that no other device uses.
    Own(Team),
}

/// A CPU that prints to standard output and writes warnings to standard error.
struct Host {
    cpu: Cpu,
    threads: Threads,
    /// Lock of the condition variable `bell`, on which threads sleep while they wait for other threads.
    bed: Mutex<()>,
    bell: Condvar,
}

/// Number of checks before a waiting thread sleeps. Most waits are shorter than the time that it takes to fall asleep.
const LOOKS: usize = 64;

impl Host {
    fn new(cpu: Cpu, threads: Threads) -> Host {
        Host { cpu, threads, bed: Mutex::new(()), bell: Condvar::new() }
    }
}

impl Backend for Host {
    fn name(&self) -> &str {
        self.cpu.name()
    }

    fn run(&self, def: &'static OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        match &self.threads {
            Threads::Own(team) => team.during(|| self.cpu.run(def, call)),
            _ => self.cpu.run(def, call),
        }
    }

    fn during(&self, work: &mut dyn FnMut()) {
        match &self.threads {
            Threads::Own(team) => team.during(work),
            _ => work(),
        }
    }

    fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
        self.cpu.has_kernel(def, dtype)
    }

    fn kernels(&self) -> &[&'static Kernel] {
        self.cpu.kernels()
    }

    fn threads(&self) -> usize {
        match &self.threads {
            Threads::One => 1,
            Threads::All => team::threads(),
            Threads::Own(team) => team.threads(),
        }
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
        // `wake` takes this lock too. Hence it cannot run between a failed check here and the sleep that follows it.
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
