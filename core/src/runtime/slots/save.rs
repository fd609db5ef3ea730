//! A save in a slot, in slices.

use super::area::Area;
use super::search::Search;
use super::{Committed, MAGIC};
use crate::base::error::{Error, Result};
use crate::runtime::checkpoint::{Budget, Contents, Outcome, Saving};
use crate::runtime::session::Session;
use bytemuck::Zeroable;
use embedded_storage::nor_flash::NorFlash;

/// The stages of a save.
#[derive(PartialEq)]
enum Stage {
    Measure,
    /// Search for the checkpoint that the save must keep.
    Choose,
    Erase,
    Write,
}

/// A position in a save.
pub(super) struct Save {
    stage: Stage,
    /// The session's version when the save began.
    version: (usize, u32),
    saving: Saving,
    search: Search,
    slot: u32,
    pub(super) record: Committed,
    /// Offset of the slot's next block to erase.
    erased: u32,
}

impl Save {
    pub(super) fn new(session: &Session<'_, '_>, contents: Contents) -> Result<Save> {
        session.finished()?;
        Ok(Save {
            stage: Stage::Measure,
            version: session.version(),
            saving: Saving::new(contents),
            search: Search::new(u32::MAX),
            slot: 0,
            record: Committed::zeroed(),
            erased: 0,
        })
    }

    /// Goes on with the save. Returns true when it is done.
    #[inline(always)]
    pub(super) fn advance<F: NorFlash, const BUFFER: usize, B: Budget>(
        &mut self,
        area: &mut Area<F, BUFFER>,
        known: &mut u32,
        session: &Session<'_, '_>,
        budget: &mut B,
    ) -> Result<bool> {
        if session.version() != self.version {
            return Err(Error::Interrupted);
        }
        let head = Area::<F, BUFFER>::HEAD;
        if self.stage == Stage::Measure {
            let measured = self.saving.measure(session, budget);
            if !measured.map_err(|fault| fault.error(self.saving.variable))? && !B::WHOLE {
                return Ok(false);
            }
            let needed = self.saving.bytes.saturating_add(head);
            if needed > area.size {
                return Err(Error::SlotTooSmall { needed, got: area.size });
            }
            self.stage = Stage::Choose;
        }
        if self.stage == Stage::Choose {
            let own = session.program().identity();
            if !self.search.advance(area, own, *known, budget) && !B::WHOLE {
                return Ok(false);
            }
            *known = self.search.record.sequence;
            self.slot = area.next(own, self.search.slot);
            let sequence = self.search.highest.checked_add(1).ok_or(Error::TooLarge)?;
            self.record = Committed { magic: MAGIC, sequence, bytes: self.saving.bytes, checksum: 0 };
            area.seek(self.slot, head);
            self.stage = Stage::Erase;
        }
        if !self.write(area, session, budget).map_err(|fault| fault.error(self.slot))? && !B::WHOLE {
            return Ok(false);
        }
        *known = self.record.sequence;
        Ok(true)
    }

    /// Erases the slot, then writes the checkpoint, the record and the commit word. Returns true when all is done.
    #[inline(always)]
    fn write<F: NorFlash, const BUFFER: usize, B: Budget>(
        &mut self,
        area: &mut Area<F, BUFFER>,
        session: &Session<'_, '_>,
        budget: &mut B,
    ) -> Outcome<bool> {
        if self.stage == Stage::Erase {
            let end = Area::<F, BUFFER>::HEAD + self.record.bytes;
            let next = budget.erase(self.erased, end, F::ERASE_SIZE as u32);
            area.erase(self.erased, next)?;
            self.erased = next;
            if next < end && !B::WHOLE {
                return Ok(false);
            }
            self.stage = Stage::Write;
        }
        if budget.is_spent() || !self.saving.write(session, area, budget)? && !B::WHOLE {
            return Ok(false);
        }
        self.record.checksum = self.saving.sum.get();
        area.commit(&self.record)?;
        Ok(true)
    }
}
