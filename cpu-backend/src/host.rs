//! The host's CPU as a device.

use crate::team::{self, Team};
use gradlet_core::custom_op::{Call, Kernel, OpDef};
use gradlet_core::device::{Backend, Cpu};
use gradlet_core::internal::sync::Task;
use gradlet_core::{DType, Result};
use std::fmt;
use std::sync::{Condvar, Mutex, PoisonError};

/// The threads on which a CPU runs its kernels.
pub enum Threads {
    /// The thread that calls.
    One,
    /// All threads of the process: see [`threads`](crate::threads).
    All,
    /// Threads that no other device uses.
    Own(Team),
}

/// A CPU that prints to standard output and writes warnings to standard error.
pub struct Host {
    cpu: Cpu,
    threads: Threads,
    /// Lock of the condition variable `bell`, on which threads sleep while they wait for other threads.
    bed: Mutex<()>,
    bell: Condvar,
}

/// Number of checks before a waiting thread sleeps. Most waits are shorter than the time that it takes to fall asleep.
const LOOKS: usize = 64;

impl Host {
    /// Creates a CPU that has the name and the kernels of `cpu`, and runs them on `threads`.
    pub fn new(cpu: Cpu, threads: Threads) -> Host {
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
