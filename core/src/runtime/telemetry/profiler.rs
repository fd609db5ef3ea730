//! How long each instruction takes.

use crate::base::error::Result;
use crate::runtime::exec::{Profile, Session};
use crate::runtime::program::SignatureId;

/// Counts a clock's ticks for each instruction of a run.
///
/// The clock is any function that counts up and wraps, such as that of a cycle counter; the counts go into memory of the caller's, a word
/// for each instruction of the signature. What has no word is in the total only.
///
/// ```no_run
/// use gradlet_core::telemetry::{Profiler, Telemetry};
/// # fn cycles() -> u32 { 0 }
/// # fn firmware<W>(telemetry: &mut Telemetry<'_, W>, session: &mut gradlet_core::Session<'_, '_>, train: gradlet_core::SignatureId) ->
/// gradlet_core::Result<()> { let mut counts = [0; 64];
/// let mut profiler = Profiler::new(cycles, &mut counts); // `cortex_m::peripheral::DWT::cycle_count` on a Cortex-M4
/// profiler.run(session, train)?;
/// telemetry.counts("train", 100, &profiler);
/// # Ok(())
/// # }
/// ```
pub struct Profiler<'b, C> {
    clock: C,
    counts: &'b mut [u32],
    /// The first instruction of the run.
    first: u32,
    /// How many of the counts belong to instructions.
    used: usize,
    total: u32,
    /// When the instruction began that is running.
    began: u32,
}

impl<'b, C: FnMut() -> u32> Profiler<'b, C> {
    /// Nothing was run yet.
    pub fn new(clock: C, counts: &'b mut [u32]) -> Profiler<'b, C> {
        Profiler { clock, counts, first: 0, used: 0, total: 0, began: 0 }
    }

    /// Runs `signature`, and counts. Fails as [`Session::run`].
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
    /// The counts of the last run, from its first instruction to the last one that ran. One that ran several times has the sum.
    pub fn counts(&self) -> &[u32] {
        self.counts.get(..self.used).unwrap_or(&[])
    }

    /// The number of the first of these instructions in the artifact.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// The counts of the whole last run: those of the instructions, and what was between them.
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
