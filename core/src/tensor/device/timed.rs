//! Work of a device with memory of its own, as a profiler hears of it: with the time by the device's own clock.

use crate::base::error::Result;
use crate::tensor::device::Device;
use crate::tensor::profile::{Activity, Profiler, Transfer, during};

impl Device {
    /// Calls `work`, which puts work on this device, and reports it to `profiler` as `activity`. If the device has a clock, waits for the
    /// work and reports its time, too.
    pub(crate) fn timed(&self, profiler: &dyn Profiler, activity: Activity<'_>, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        during(Some(profiler), activity, || {
            let Some(remote) = self.remote() else { return work() };
            if let Some(nanoseconds) = remote.timed(&mut work)? {
                profiler.computed(self, nanoseconds);
            }
            Ok(())
        })
    }

    /// Calls `work`, a transfer of `bytes` bytes from or to memory of this device that the host cannot address. Reports it to the profiler,
    /// if there is one.
    pub(crate) fn transfer(&self, kind: Transfer, bytes: usize, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        match self.profiler() {
            Some(profiler) => self.timed(profiler, Activity::Transfer(kind, bytes as u64), work),
            None => work(),
        }
    }
}
