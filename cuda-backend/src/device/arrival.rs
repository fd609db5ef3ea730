//! Small values that kernels of a graph write to pinned memory, where the host reads them while the rest of the graph still runs: the word
//! of refused data, and results such as the loss of a training step.

use crate::device::Shared;
use crate::device::graph::{Prepared, address};
use crate::device::launch::{Operand, Ready};
use crate::device::merge::overlap;
use crate::driver::Driver;
use crate::driver::api::Handle;
use crate::gpu::region::MAPPED;
use crate::lower::{self, Job};
use gradlet_core::device::Slot;
use gradlet_core::{Error, Result, TensorType, ops};
use std::sync::atomic::{Ordering, fence};

/// Most bytes of such a result, and most results of a graph: each takes two more nodes.
const SMALL: usize = 16;
pub(super) const MOST: usize = 4;

/// Pinned memory of a graph, in places of [`SMALL`] bytes.
pub(super) struct Landing {
    host: *mut u8,
    /// The address at which the GPU sees it.
    address: u64,
    used: usize,
}

impl Landing {
    /// Allocates memory for a fault word and [`MOST`] results.
    pub(super) fn new(driver: &Driver) -> Result<Landing> {
        let (mut host, bytes) = (std::ptr::null_mut(), (1 + MOST) * SMALL);
        // SAFETY: the first argument is a place for the address, here and below.
        driver.check("cuMemHostAlloc", unsafe { (driver.api().allocate_host)(&mut host, bytes, MAPPED) })?;
        let mut landing = Landing { host: host.cast(), address: 0, used: 0 };
        let found = driver.check("cuMemHostGetDevicePointer", unsafe { (driver.api().host_address)(&mut landing.address, host, 0) });
        found.inspect_err(|_| landing.free(driver))?;
        Ok(landing)
    }

    /// Frees the memory. Nothing uses it any more.
    pub(super) fn free(&self, driver: &Driver) {
        // SAFETY: the memory is the driver's own.
        unsafe { (driver.api().free_host)(self.host.cast()) };
    }

    /// Prepares a kernel that copies a value to an unused place, unless a step before `step` has refused its data. The address of the value
    /// is missing.
    pub(super) fn copy(&mut self, device: &Shared, tensor_type: TensorType, step: u32) -> Result<Delivery> {
        let types = [tensor_type];
        let calls =
            lower::lower(&Job { op: &ops::identity::DEF, attributes: &[], inputs: &types, outputs: &types, target: device.target() })?;
        let [call] = calls.as_slice() else { return Err(Error::Internal) };
        let offset = self.used * SMALL;
        self.used += 1;
        Ok(Delivery { launch: device.ready(call, step)?, host: self.host.wrapping_add(offset), to: self.address + offset as u64 })
    }
}

/// A kernel that copies a value to pinned memory.
pub(super) struct Delivery {
    launch: Ready,
    pub host: *const u8,
    /// The address at which the GPU sees the same place.
    to: u64,
}

impl Delivery {
    /// Sets the address of the value. Returns the launch, and true if the address has changed.
    pub(super) fn place(&mut self, from: u64) -> Result<(&Ready, bool)> {
        let to = self.to;
        let changed = self.launch.place(|operand| Some(if matches!(operand, Operand::Input(_)) { from } else { to }))?;
        Ok((&self.launch, changed))
    }
}

/// A result that the host can read early.
pub(super) struct Early {
    pub slot: Slot,
    /// The event after which it has arrived.
    pub event: Handle,
    /// The copy to pinned memory and its node, unless the host sees the device's memory.
    pub copy: Option<(Delivery, Handle)>,
}

/// Returns the results of step `index` that the host can read early. A value that a later step changes is none: it has not arrived yet.
/// One that a step reads before it is written is a variable, such as the number of steps, which the host hardly ever wants.
pub(super) fn early_slots(steps: &[Prepared], index: usize) -> impl Iterator<Item = Slot> {
    let (before, later) = steps.split_at(index + 1);
    let small = |slot: &Slot| slot.tensor_type.bytes().is_some_and(|bytes| (1..=SMALL).contains(&bytes));
    let lasts = |slot: &Slot| !later.iter().flat_map(Prepared::results).any(|other| overlap(slot, other));
    let is_new = |slot: &Slot| !before.iter().flat_map(Prepared::inputs).any(|other| overlap(slot, other));
    let all = steps[index].results().filter(|_| !later.is_empty());
    all.filter(move |slot| small(slot) && lasts(slot) && is_new(slot)).copied()
}

/// The results of the graph that was launched last.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Number of the last work when the graph was launched. After other work, the memory may have other content.
    work: u64,
    results: Vec<Arrival>,
}

struct Arrival {
    address: u64,
    bytes: usize,
    event: Handle,
    /// The place where the host reads it.
    host: *const u8,
}

// SAFETY: events and pinned memory are not tied to a thread.
unsafe impl Send for Arrivals {}

impl Arrivals {
    /// Notes the results of a graph that was launched with these bases. `host` returns the address at which the host sees memory.
    pub(super) fn launched(&mut self, early: &[Early], bases: &[u64], work: u64, host: impl Fn(u64) -> Option<*mut u8>) {
        let arrival = |Early { slot, event, copy }: &Early| {
            let address = address(slot, bases)?;
            let host = match copy {
                Some((copy, _)) => copy.host,
                None => host(address)?,
            };
            Some(Arrival { address, bytes: slot.tensor_type.bytes()?, event: *event, host })
        };
        *self = Arrivals { work, results: early.iter().filter_map(arrival).collect() };
    }

    /// If the bytes at `address` are such a result, waits for it and reads it. Returns true in this case. `last` returns the number of the
    /// last work.
    pub(super) fn read(
        &self,
        address: u64,
        into: &mut [u8],
        last: impl Fn() -> u64,
        wait: impl FnOnce(Handle) -> Result<()>,
    ) -> Result<bool> {
        let found = self.results.iter().find(|result| (result.address, result.bytes) == (address, into.len()));
        let Some(result) = found.filter(|_| self.work == last()) else { return Ok(false) };
        wait(result.event)?;
        // SAFETY: the place has as many bytes, and exists until its graph forgets it.
        into.iter_mut().enumerate().for_each(|(at, byte)| *byte = unsafe { result.host.add(at).read_volatile() });
        fence(Ordering::Acquire);
        // The next run of the graph writes to the same place, but not before it has a number.
        Ok(self.work == last())
    }

    /// Forgets results whose graph ends.
    pub(super) fn forget(&mut self, early: &[Early]) {
        self.results.retain(|result| early.iter().all(|early| early.event != result.event));
    }
}
