//! Small results that the host can read while the rest of their graph still runs, such as the loss of a training step.

use super::graph::Prepared;
use crate::driver::Driver;
use crate::driver::api::Handle;
use crate::gpu::stream::{NO_TIME, new_event};
use gradlet_core::device::Slot;
use gradlet_core::{Error, Result};

/// Most bytes of such a result, and most results of a graph: each takes another node.
const SMALL: usize = 16;
const MOST: usize = 4;

/// Results of a graph, each with an event that comes after the step that computes it.
#[derive(Default)]
pub(super) struct Early(Vec<(Slot, Handle)>);

impl Early {
    /// Adds the small results of `step`, which is followed by others. `node` is its last node in `graph`.
    pub(super) fn add(&mut self, driver: &Driver, graph: Handle, step: &Prepared, node: Handle) -> Result<()> {
        for slot in step.results().filter(|slot| slot.tensor_type.bytes().is_some_and(|bytes| bytes <= SMALL)) {
            if self.0.len() == MOST {
                break;
            }
            self.0.push((*slot, std::ptr::null_mut()));
            let Some((_, event)) = self.0.last_mut() else { return Err(Error::Internal) };
            new_event(driver, event, NO_TIME)?;
            let mut after = std::ptr::null_mut();
            // SAFETY: the first argument is a place for the handle, and the event exists as long as the graph.
            let status = unsafe { (driver.api().add_event)(&mut after, graph, &node, 1, *event) };
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
