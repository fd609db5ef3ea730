//! The search for the newest complete checkpoint, in slices.

use super::area::Area;
use super::{Committed, FAILED};
use crate::base::error::Result;
use crate::runtime::checkpoint::{Budget, Fault, Identity, Outcome, Take};
use crate::runtime::program::{Checksum, NONE};
use bytemuck::Zeroable;
use embedded_storage::nor_flash::NorFlash;

/// Number of bytes that are read together.
const CHUNK: usize = 64;
/// Cost of a byte that is summed, in instructions of a Cortex-M4.
const SUM: u32 = 12;

/// A position in the search for the newest complete checkpoint of an artifact.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// The highest sequence number that the checkpoint can have.
    pub(super) limit: u32,
    /// The highest sequence number of all committed slots.
    pub(super) highest: u32,
    /// True if a slot could not be read.
    pub(super) unreadable: bool,
    /// True if a slot that may belong to the artifact is damaged.
    pub(super) damaged: bool,
    /// The slot that is being checked, or [`NONE`].
    pub(super) slot: u32,
    /// Its record.
    pub(super) record: Committed,
    pub(super) sum: Sum,
}

/// A checksum of a checkpoint in flash that is being computed.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    sum: Checksum,
    /// Number of bytes that are left.
    left: u32,
}

impl Sum {
    pub(super) fn new(bytes: u32) -> Sum {
        Sum { sum: Checksum::NEW, left: bytes }
    }

    /// Adds the next bytes of `source`. Returns the checksum when all are added.
    #[inline(never)]
    pub(super) fn advance(&mut self, source: &mut dyn Take, budget: &mut impl Budget) -> Outcome<Option<u32>> {
        let mut chunk = [0; CHUNK];
        while self.left > 0 {
            if budget.is_spent() {
                return Ok(None);
            }
            let chunk = chunk.get_mut(..CHUNK.min(self.left as usize)).unwrap_or_default();
            source.take(chunk)?;
            self.sum = self.sum.add(chunk);
            self.left -= chunk.len() as u32;
            budget.spend(SUM * chunk.len() as u32);
        }
        Ok(Some(self.sum.get()))
    }
}

impl Search {
    pub(super) fn new(limit: u32) -> Search {
        Search { limit, highest: 0, unreadable: false, damaged: false, slot: NONE, record: Committed::zeroed(), sum: Sum::new(0) }
    }

    /// Goes on with the search. Returns true when it is done. `slot` is then the newest complete slot of the artifact `own`, or [`NONE`].
    /// The slot with the sequence number `known` is taken for complete.
    #[inline(never)]
    pub(super) fn advance<F: NorFlash, const BUFFER: usize>(
        &mut self,
        area: &mut Area<F, BUFFER>,
        own: Identity,
        known: u32,
        budget: &mut impl Budget,
    ) -> bool {
        loop {
            if self.slot == NONE {
                // The newest checkpoint first, because checking one takes time.
                area.scan(own, self);
                if self.slot == NONE || self.record.sequence == known {
                    return true;
                }
                area.seek(self.slot, Area::<F, BUFFER>::HEAD);
                self.sum = Sum::new(self.record.bytes);
            }
            match self.sum.advance(area, budget) {
                Ok(None) => return false,
                Ok(Some(sum)) if sum == self.record.checksum => return true,
                Ok(Some(_)) | Err(Fault::CutShort) => self.damaged = true,
                Err(_) => self.unreadable = true,
            }
            (self.limit, self.slot) = (self.record.sequence - 1, NONE);
        }
    }

    /// Returns the slot after the search, or `None` if there is none and all slots are in order.
    pub(super) fn found(&self) -> Result<Option<u32>> {
        match self.slot {
            NONE if self.unreadable => Err(FAILED.error(NONE)),
            NONE if self.damaged => Err(Fault::Damaged.error(NONE)),
            NONE => Ok(None),
            slot => Ok(Some(slot)),
        }
    }
}
