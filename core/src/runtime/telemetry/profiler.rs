//! Measures how long each instruction takes.

use crate::base::error::Result;
use crate::runtime::exec::Profile;
use crate::runtime::program::SignatureId;
use crate::runtime::session::Session;

/// Counts the ticks of a clock for each instruction of a run.
///
/// The clock is any function that counts up and wraps around, such as a cycle counter. The caller provides the memory for the ticks: one
/// word for each instruction of the signature. Instructions beyond it appear only in the total.
///
/// ```no_run
/// use gradlet_core::runtime::telemetry::{Profiler, Telemetry};
/// # fn cycles() -> u32 { 0 }
/// # use gradlet_core::{Result, Session};
/// # use gradlet_core::runtime::SignatureId;
/// # fn firmware<W>(telemetry: &mut Telemetry<'_, W>, session: &mut Session<'_, '_>, train: SignatureId) -> Result<()> {
/// let mut counts = [0; 64];
/// let mut profiler = Profiler::new(cycles, &mut counts); // `cortex_m::peripheral::DWT::cycle_count` on a Cortex-M4
/// profiler.run(session, train)?;
/// telemetry.counts("train", 100, &profiler);
/// # Ok(())
/// # }
/// ```
pub struct Profiler<'b, C> {
    clock: C,
    counts: &'b mut [u32],
    /// Index of the run's first instruction.
    first: u32,
    /// Number of the leading words of `counts` that belong to instructions.
    used: usize,
    total: u32,
    /// Clock value at the start of the current instruction.
    began: u32,
}

impl<'b, C: FnMut() -> u32> Profiler<'b, C> {
    /// Creates a profiler that reads `clock` and stores ticks in `counts`.
    pub fn new(clock: C, counts: &'b mut [u32]) -> Profiler<'b, C> {
        Profiler { clock, counts, first: 0, used: 0, total: 0, began: 0 }
    }

    /// Runs `signature` and counts the ticks. Fails like [`Session::run`].
    pub fn run(&mut self, session: &mut Session<'_, '_>, signature: SignatureId) -> Result<()> {
        self.first = session.program().block(signature)?.first;
        self.used = 0;
        self.counts.fill(0);
        let begin = (self.clock)();
        let outcome = session.run_profiled(signature, self);
        self.total = (self.clock)().wrapping_sub(begin);
        outcome
    }
}

impl<C> Profiler<'_, C> {
    /// Returns the ticks of the last run, from its first instruction to the highest-numbered one that ran. An instruction that ran several
    /// times has the sum of its ticks.
    pub fn counts(&self) -> &[u32] {
        self.counts.get(..self.used).unwrap_or(&[])
    }

    /// Returns the index in the artifact of the instruction that the first word of [`Profiler::counts`] belongs to.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Returns the ticks of the whole last run, including the time between instructions.
    pub fn total(&self) -> u32 {
        self.total
    }
}

impl<C: FnMut() -> u32> Profile for Profiler<'_, C> {
    fn begin(&mut self, _: u32) {
        self.began = (self.clock)();
    }

    fn end(&mut self, instruction: u32) {
        let passed = (self.clock)().wrapping_sub(self.began);
        let index = instruction.wrapping_sub(self.first) as usize;
        if let Some(count) = self.counts.get_mut(index) {
            *count = count.wrapping_add(passed);
            self.used = self.used.max(index + 1);
        }
    }
}
