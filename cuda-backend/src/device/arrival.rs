//! Small results that the host can read while the rest of their graph still runs, such as the loss of a training step.

use crate::device::graph::Prepared;
use crate::device::merge::overlap;
use crate::driver::Driver;
use crate::driver::api::Handle;
use crate::gpu::stream::{NO_TIME, new_event};
use gradlet_core::Result;
use gradlet_core::device::Slot;

/// Most bytes of such a result, and most results of a graph: each takes another node.
const SMALL: usize = 16;
const MOST: usize = 4;

/// Results of a graph, each with an event that comes after the step that computes it.
#[derive(Default)]
pub(super) struct Early(Vec<(Slot, Handle)>);

impl Early {
    /// Adds the small results of `step`, the last node of which is `node`. `later` are the steps that follow. A result that one of them
    /// changes is left out: it has not arrived yet.
    pub(super) fn add(&mut self, driver: &Driver, graph: Handle, step: &Prepared, node: Handle, later: &[Prepared]) -> Result<()> {
        let lasts = |slot: &Slot| !later.iter().flat_map(Prepared::results).any(|other| overlap(slot, other));
        let small = |slot: &Slot| slot.tensor_type.bytes().is_some_and(|bytes| bytes <= SMALL);
        for slot in step.results().filter(|slot| small(slot) && lasts(slot)).take(MOST - self.0.len()) {
            let mut event = std::ptr::null_mut();
            new_event(driver, &mut event, NO_TIME)?;
            self.0.push((*slot, event));
            let mut after = std::ptr::null_mut();
            // SAFETY: the first argument is a place for the handle, and the event exists as long as the graph.
            let status = unsafe { (driver.api().add_event)(&mut after, graph, &node, 1, event) };
            driver.check("cuGraphAddEventRecordNode", status)?;
        }
        Ok(())
    }

    /// Returns the events.
    pub(super) fn events(&self) -> impl Iterator<Item = Handle> {
        self.0.iter().map(|(_, event)| *event)
    }
}

/// The results of the graph that was launched last.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Number of the last work when the graph was launched. After other work, the memory may have other content.
    work: u64,
    /// For each result its address, its size and its event.
    results: Vec<(u64, usize, Handle)>,
}

// SAFETY: events are not tied to a thread.
unsafe impl Send for Arrivals {}

impl Arrivals {
    /// Notes the results of a graph that was launched with these bases.
    pub(super) fn launched(&mut self, early: &Early, bases: &[u64], work: u64) {
        let result = |(slot, event): &(Slot, Handle)| {
            let address = bases.get(slot.base as usize)?.checked_add(slot.offset)?;
            Some((address, slot.tensor_type.bytes()?, *event))
        };
        *self = Arrivals { work, results: early.0.iter().filter_map(result).collect() };
    }

    /// Returns the event after which the `bytes` bytes at `address` have arrived, if `work` is still the last work.
    pub(super) fn event(&self, address: u64, bytes: usize, work: u64) -> Option<Handle> {
        let found = self.results.iter().find(|result| (result.0, result.1) == (address, bytes));
        found.filter(|_| self.work == work).map(|(.., event)| *event)
    }

    /// Forgets results whose events end.
    pub(super) fn forget(&mut self, early: &Early) {
        self.results.retain(|(.., event)| early.events().all(|other| other != *event));
    }
}
