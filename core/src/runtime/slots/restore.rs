//! A restore from a slot, in slices.

use super::area::Area;
use super::search::Search;
use crate::base::error::{Error, Result};
use crate::runtime::checkpoint::{Budget, Reading, Restoring, Target};
use crate::runtime::program::Program;
use core::task::Poll;
use embedded_storage::nor_flash::NorFlash;

/// A position in a restore.
pub(super) struct Restore {
    search: Search,
    /// True if the search is done.
    found: bool,
    restoring: Restoring,
}

impl Restore {
    pub(super) fn new(sequence: u32) -> Restore {
        Restore { search: Search::new(sequence), found: false, restoring: Restoring::new() }
    }

    /// Goes on with the restore of a checkpoint of `program`. Returns its sequence number, or `None`, when it is done.
    #[inline(always)]
    pub(super) fn advance<'p, 'm, F: NorFlash, const BUFFER: usize, B: Budget>(
        &mut self,
        area: &mut Area<F, BUFFER>,
        known: &mut u32,
        program: &Program<'_>,
        target: &mut impl Target<'p, 'm>,
        budget: &mut B,
    ) -> Result<Poll<Option<u32>>> {
        if !self.found {
            if !self.search.advance(area, program.identity(), 0, budget) && !B::WHOLE {
                return Ok(Poll::Pending);
            }
            let Some(slot) = self.search.found()? else { return Ok(Poll::Ready(None)) };
            *known = self.search.record.sequence;
            area.seek(slot, Area::<F, BUFFER>::HEAD);
            self.found = true;
        }
        if self.restoring.is_begun() && target.session().is_some_and(|session| session.finished().is_ok()) {
            return Err(Error::Interrupted);
        }
        let mut source = Reading::new(area);
        let done = self.restoring.advance(program, &mut source, true, target, budget);
        Ok(if source.outcome(done)? || B::WHOLE { Poll::Ready(Some(*known)) } else { Poll::Pending })
    }
}
