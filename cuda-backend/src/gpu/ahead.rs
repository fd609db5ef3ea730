//! Copies from the host that overlap the work of a device: a batch is uploaded while the step before it still runs.
//!
//! The copies have a stream of their own. A copy waits only for the work that used its memory before, and the next work waits for the
//! copies.

use crate::driver::Driver;
use crate::driver::api::{Address, Handle};
use crate::gpu::Context;
use crate::gpu::reuse::Reuse;
use crate::gpu::stream::{NO_TIME, Stream, destroy_events, new_event};
use gradlet_core::Result;
use gradlet_core::device::Refused;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Copies that need not wait for all work of a device.
pub(crate) struct Ahead {
    context: Arc<Context>,
    /// The stream of the copies, once there was one.
    copies: OnceLock<Stream>,
    order: Mutex<Order>,
}

/// The order between work and copies.
struct Order {
    /// Number of works that were begun so far, and of those that were ended.
    last: u64,
    /// True if a copy was made for which no work has waited yet.
    is_copied: bool,
    /// An event that comes after the copies.
    copied: Handle,
    /// Events that come after the works with these numbers, in ascending order.
    marks: VecDeque<(u64, Handle)>,
    /// Number of the last work that is known to be done.
    done: u64,
    /// Events that mark nothing at the moment.
    spare: Vec<Handle>,
    reuse: Reuse,
}

// SAFETY: events are not tied to a thread.
unsafe impl Send for Order {}

impl Ahead {
    pub(crate) fn new(context: &Arc<Context>) -> Ahead {
        let (copied, reuse) = (std::ptr::null_mut(), Reuse::default());
        let order = Order { last: 0, is_copied: false, copied, marks: VecDeque::new(), done: 0, spare: Vec::new(), reuse };
        Ahead { context: context.clone(), copies: OnceLock::new(), order: Mutex::new(order) }
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins work on `stream`, which is current. The work waits for the copies.
    pub(crate) fn work<'a>(&'a self, driver: &'a Driver, stream: Handle) -> Result<Begun<'a>> {
        self.begin(driver, stream)?;
        Ok(Begun { driver, stream, ahead: self })
    }

    fn begin(&self, driver: &Driver, stream: Handle) -> Result<()> {
        let mut order = self.order();
        order.last += 1;
        let (true, Some(copies)) = (std::mem::take(&mut order.is_copied), self.copies.get()) else { return Ok(()) };
        if order.copied.is_null() {
            new_event(driver, &mut order.copied, NO_TIME)?;
        }
        // SAFETY: the streams and the event exist.
        driver.check("cuEventRecord", unsafe { (driver.api().record_event)(order.copied, copies.handle()) })?;
        // SAFETY: as above.
        driver.check("cuStreamWaitEvent", unsafe { (driver.api().wait_event)(stream, order.copied, 0) })
    }

    /// Notes an allocation.
    pub(crate) fn allocated(&self, address: &Result<Address, Refused>) {
        let mut order = self.order();
        let last = order.last;
        order.reuse.allocated(address, last);
    }

    /// Notes that the `bytes` bytes at `address` are free, and may be in use by the work that `stream` has now.
    pub(crate) fn freed(&self, address: Address, bytes: u64, stream: &Stream) {
        let mut order = self.order();
        // A failure means that the GPU is lost. Nothing uses its memory then.
        let done = stream.enter().and_then(|driver| order.mark(driver, stream.handle())).unwrap_or(u64::MAX);
        let last = order.last;
        order.reuse.freed(address..address + bytes, last, done);
    }

    /// Returns the event for which a copy to the `bytes` bytes at `address` must wait, if there is one. Returns `None` if the copy must
    /// wait for all work.
    pub(crate) fn user(&self, address: Address, bytes: usize) -> Option<Option<Handle>> {
        let order = self.order();
        let user = order.reuse.user(address..address + bytes as u64, order.last)?;
        if user <= order.done {
            return Some(None);
        }
        order.marks.iter().find(|(number, _)| *number >= user).map(|(_, event)| Some(*event))
    }

    /// True if the device is known to have done all its work.
    pub(crate) fn is_idle(&self, driver: &Driver) -> bool {
        let mut order = self.order();
        order.look(driver);
        order.done == order.last
    }

    fn copies(&self) -> Result<&Stream> {
        if let Some(copies) = self.copies.get() {
            return Ok(copies);
        }
        // Of two threads that arrive here together, one drops its stream.
        let _ = self.copies.set(Stream::new(&self.context)?);
        self.copies.get().ok_or(gradlet_core::Error::Internal)
    }

    /// Returns the number of the last work.
    pub(crate) fn last(&self) -> u64 {
        self.order().last
    }

    /// Copies `bytes` to address `to`, after the event `user`.
    pub(crate) fn upload(&self, bytes: &[u8], to: Address, user: Option<Handle>) -> Result<()> {
        let copies = self.copies()?;
        if let Some(event) = user {
            let driver = copies.enter()?;
            // SAFETY: the stream exists. So does the event: it is destroyed with this value.
            driver.check("cuStreamWaitEvent", unsafe { (driver.api().wait_event)(copies.handle(), event, 0) })?;
        }
        copies.upload(bytes, to)?;
        self.order().is_copied = true;
        Ok(())
    }
}

/// Work that a thread puts on a stream. Its end has a number of its own: an event that another thread records in the meantime may come
/// before this work.
pub(crate) struct Begun<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) stream: Handle,
    ahead: &'a Ahead,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.ahead.order().last += 1;
    }
}

impl Order {
    /// Marks the end of the work so far, unless it is marked. Returns the number of the last work that is done.
    fn mark(&mut self, driver: &Driver, stream: Handle) -> Result<u64> {
        self.look(driver);
        let marked = self.marks.back().map_or(self.done, |(number, _)| *number);
        if marked < self.last {
            let mut event = self.spare.pop().unwrap_or(std::ptr::null_mut());
            if event.is_null() {
                new_event(driver, &mut event, NO_TIME)?;
            }
            self.marks.push_back((self.last, event));
            // SAFETY: the event and the stream exist.
            driver.check("cuEventRecord", unsafe { (driver.api().record_event)(event, stream) })?;
        }
        Ok(self.done)
    }

    /// Looks which marked works are done.
    fn look(&mut self, driver: &Driver) {
        // SAFETY: the events exist. Anything but success means that the work is not done.
        while let Some(&(number, event)) = self.marks.front().filter(|(_, event)| unsafe { (driver.api().query_event)(*event) } == 0) {
            self.marks.pop_front();
            self.spare.push(event);
            self.done = number;
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The stream waits for its copies, which wait for the events.
        drop(self.copies.take());
        let Ok(driver) = self.context.enter() else { return };
        let order = self.order.get_mut().unwrap_or_else(PoisonError::into_inner);
        let marks = order.marks.iter().map(|(_, event)| *event);
        destroy_events(driver, marks.chain(order.spare.drain(..)).chain([order.copied]));
    }
}
