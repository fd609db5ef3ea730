//! Which work may still use memory that a copy from the host is about to fill.
//!
//! Work happens in the order of its calls on one stream. A copy on another stream must come after the work that used the same memory
//! before. Work has numbers, in the order in which it was put on the stream.

use gradlet_core::device::Refused;
use std::ops::Range;

/// The memory that work may still use, although it is free or was just allocated.
#[derive(Default)]
pub(crate) struct Reuse {
    /// Freed ranges of addresses, with the number of the last work that may use them.
    freed: Vec<(Range<u64>, u64)>,
    /// Addresses that were allocated after work `last` and before any other.
    fresh: Vec<u64>,
    last: u64,
}

impl Reuse {
    /// Notes that the range at `address` is allocated after work `last`.
    pub(crate) fn allocated(&mut self, address: &Result<u64, Refused>, last: u64) {
        if last != self.last {
            (self.fresh, self.last) = (Vec::new(), last);
        }
        self.fresh.extend(address.as_ref().ok());
    }

    /// Notes that `range` is freed after work `last`. Work up to `done` is done.
    pub(crate) fn freed(&mut self, range: Range<u64>, last: u64, done: u64) {
        self.fresh.retain(|address| !range.contains(address));
        self.freed.retain(|(_, user)| *user > done);
        match self.freed.last_mut() {
            Some((before, user)) if *user == last && before.end == range.start => before.end = range.end,
            _ if last > done => self.freed.push((range, last)),
            _ => (),
        }
    }

    /// Returns the number of the last work that may use `range`, 0 for none. Returns `None` if any work may, because the range was not
    /// allocated after work `last`.
    pub(crate) fn user(&self, range: Range<u64>, last: u64) -> Option<u64> {
        let is_fresh = self.last == last && self.fresh.contains(&range.start);
        let overlaps = |(freed, _): &&(Range<u64>, u64)| freed.start < range.end && range.start < freed.end;
        is_fresh.then(|| self.freed.iter().filter(overlaps).map(|(_, user)| *user).max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_waits_for_the_work_before_the_memory_was_freed() {
        let mut reuse = Reuse::default();
        reuse.allocated(&Ok(0), 0);
        reuse.freed(0..256, 1, 0);
        reuse.freed(256..512, 2, 0);
        reuse.allocated(&Ok(0), 3);
        assert_eq!(reuse.user(0..256, 3), Some(1));
        assert_eq!(reuse.user(0..257, 3), Some(2));
        assert_eq!(reuse.user(0..256, 4), None, "work 4 may use what was allocated after work 3");
        reuse.freed(1024..2048, 4, 2);
        reuse.allocated(&Ok(0), 5);
        assert_eq!(reuse.user(0..512, 5), Some(0), "works 1 and 2 are done");
        assert_eq!(reuse.user(512..513, 5), None, "nothing was allocated there");
    }

    #[test]
    fn memory_that_is_freed_is_not_fresh() {
        let mut reuse = Reuse::default();
        reuse.allocated(&Ok(0), 1);
        assert_eq!(reuse.user(0..16, 1), Some(0));
        reuse.freed(0..256, 1, 0);
        assert_eq!(reuse.user(0..16, 1), None);
    }
}
