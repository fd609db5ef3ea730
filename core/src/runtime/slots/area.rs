//! The bytes of the slots in flash.

use super::{Committed, FAILED, MAGIC, RECORD, Search};
use crate::base::error::{Error, Result};
use crate::runtime::checkpoint::{Fault, Header, Identity, Outcome, Put, Reading, Take, same};
use crate::runtime::program::{NONE, checksum};
use bytemuck::Zeroable;
use core::ops::Range;
use embedded_storage::nor_flash::NorFlash;

/// A range of flash that is divided into slots, with a position in it.
pub(super) struct Area<F, const BUFFER: usize> {
    pub(super) flash: F,
    start: u32,
    /// Size of a slot, in bytes.
    pub(super) size: u32,
    pub(super) count: u32,
    /// Bytes of a block of `BUFFER` bytes that was read, or whose bytes from `held` up to `at` wait to be written.
    words: [u8; BUFFER],
    /// Offset in flash of the slot that is being read or written.
    pub(super) begin: u32,
    /// Offset of the next byte, from the start of the slot.
    pub(super) at: u32,
    /// Offset of the first byte of `words` that is in use, from the start of the slot; [`NONE`] if there is none.
    held: u32,
    /// Bytes that were read back after a write.
    echo: [u8; BUFFER],
    /// Record of the slot that [`Area::slot`] has found, and the artifact that the checkpoint's header names.
    pub(super) record: Committed,
    pub(super) artifact: Identity,
}

/// The state of a slot.
#[derive(PartialEq)]
pub(super) enum State {
    /// No checkpoint is committed.
    Free,
    /// The checkpoint's header is damaged.
    Damaged,
    /// A checkpoint of the artifact in [`Area::artifact`] is committed. It may be damaged.
    Taken,
}

impl<F: NorFlash, const BUFFER: usize> Area<F, BUFFER> {
    /// Number of bytes before the checkpoint in a slot: the record and the commit word, each rounded up to whole words.
    pub(super) const HEAD: u32 = (RECORD.next_multiple_of(F::WRITE_SIZE) + F::WRITE_SIZE) as u32;

    pub(super) fn new(flash: F, range: Range<u32>, count: u32) -> Result<Area<F, BUFFER>> {
        let block = F::ERASE_SIZE as u32;
        let words = [F::READ_SIZE, F::WRITE_SIZE];
        let whole = words.iter().all(|&word| BUFFER.checked_rem(word) == Some(0) && F::ERASE_SIZE.checked_rem(word) == Some(0));
        let inside = range.start <= range.end && range.end as usize <= flash.capacity() && range.start.checked_rem(block) == Some(0);
        let size = range.len() as u32 / count.max(2) / block.max(1) * block;
        if !whole || !inside || count < 2 || size == 0 {
            return Err(Error::Slots);
        }
        let (words, record, artifact) = ([0; BUFFER], Committed::zeroed(), Identity { length: 0, checksum: 0 });
        Ok(Area { flash, start: range.start, size, count, words, begin: 0, at: 0, held: NONE, echo: words, record, artifact })
    }

    /// Moves to byte `at` of a slot and empties the buffer.
    #[inline(never)]
    pub(super) fn seek(&mut self, slot: u32, at: u32) {
        (self.begin, self.at, self.held) = (self.start + slot * self.size, at, NONE);
    }

    /// Erases the blocks of the current slot from offset `from` up to `to`, at least one.
    pub(super) fn erase(&mut self, from: u32, to: u32) -> Outcome {
        let to = to.next_multiple_of(F::ERASE_SIZE as u32);
        self.flash.erase(self.begin + from, self.begin + to).map_err(|_| FAILED)
    }

    /// Writes the record of the current slot, and then its commit word.
    pub(super) fn commit(&mut self, record: &Committed) -> Outcome {
        self.flush()?;
        (self.at, self.held) = (0, NONE);
        let record = bytemuck::bytes_of(record);
        self.put(record)?;
        self.put(&checksum(record).to_le_bytes())?;
        self.flush()?;
        for _ in 0..F::WRITE_SIZE {
            self.put(&[0])?;
        }
        self.flush()
    }

    /// Writes the buffered bytes in whole words, and compares them with what the flash then holds. The rest of the last word stays erased
    /// (0xff).
    #[inline(never)]
    fn flush(&mut self) -> Outcome {
        if self.held >= self.at {
            return Ok(());
        }
        let start = self.held - self.held % BUFFER as u32;
        let (from, filled) = ((self.held - start) as usize, (self.at - start) as usize);
        let end = filled.next_multiple_of(F::WRITE_SIZE);
        self.words.get_mut(filled..end).unwrap_or_default().fill(0xff);
        let words = self.words.get(from..end).unwrap_or_default();
        self.flash.write(self.begin + self.held, words).map_err(|_| FAILED)?;
        // A read begins and ends at a multiple of its own size.
        let lead = (self.held % F::READ_SIZE as u32) as usize;
        let echo = self.echo.get_mut(..(lead + words.len()).next_multiple_of(F::READ_SIZE)).unwrap_or_default();
        self.flash.read(self.begin + self.held - lead as u32, echo).map_err(|_| FAILED)?;
        (self.at, self.held) = (start + end as u32, NONE);
        if same(echo.get(lead..lead + words.len()).unwrap_or_default(), words) { Ok(()) } else { Err(Fault::Worn) }
    }

    /// Searches all slots for the newest checkpoint of the artifact `own` up to sequence number `search.limit`.
    #[inline(never)]
    pub(super) fn scan(&mut self, own: Identity, search: &mut Search) {
        (search.slot, search.record) = (NONE, Committed::zeroed());
        for number in 0..self.count {
            let state = self.slot(number);
            search.unreadable |= state.is_err();
            search.damaged |= state == Ok(State::Damaged);
            if matches!(state, Ok(State::Taken | State::Damaged)) {
                search.highest = self.record.sequence.max(search.highest);
            }
            let newer = self.record.sequence > search.record.sequence && self.record.sequence <= search.limit;
            if state == Ok(State::Taken) && self.artifact == own && newer {
                (search.slot, search.record) = (number, self.record);
            }
        }
    }

    /// Returns the slot that the next save erases: the first one after `newest` that holds no checkpoint of another artifact than `own`,
    /// or else the one with the oldest checkpoint.
    pub(super) fn next(&mut self, own: Identity, newest: u32) -> u32 {
        let (mut number, mut oldest, mut other) = (newest, NONE, 0);
        for _ in 0..self.count {
            number = if number.wrapping_add(1) < self.count { number.wrapping_add(1) } else { 0 };
            if number == newest {
                continue;
            }
            if self.slot(number) != Ok(State::Taken) || self.artifact == own {
                return number;
            }
            if self.record.sequence < oldest {
                (oldest, other) = (self.record.sequence, number);
            }
        }
        other
    }

    /// Reads the record of a slot and the header of its checkpoint. Fails if the flash cannot read them.
    #[inline(never)]
    pub(super) fn slot(&mut self, slot: u32) -> Outcome<State> {
        self.seek(slot, 0);
        match self.committed() {
            Ok(true) => (),
            // The slot ends too early to hold anything.
            Ok(false) | Err(Fault::CutShort) => return Ok(State::Free),
            Err(fault) => return Err(fault),
        }
        self.at = Self::HEAD;
        match Header::take(&mut Reading::new(self)) {
            Ok(header) => self.artifact = header.artifact,
            Err(fault @ Fault::Io(_)) => return Err(fault),
            Err(_) => return Ok(State::Damaged),
        }
        Ok(State::Taken)
    }

    /// Reads a record. Returns true if the slot is committed.
    #[inline(always)]
    fn committed(&mut self) -> Outcome<bool> {
        let (mut record, mut sum) = (Committed::zeroed(), [0; 4]);
        self.take(bytemuck::bytes_of_mut(&mut record))?;
        self.take(&mut sum)?;
        self.at = Self::HEAD - F::WRITE_SIZE as u32;
        let mut bits = 0;
        for _ in 0..F::WRITE_SIZE {
            let mut byte = [0];
            self.take(&mut byte)?;
            bits |= byte[0];
        }
        self.record = record;
        let sound = sum == checksum(bytemuck::bytes_of(&record)).to_le_bytes();
        Ok(sound && bits == 0 && record.magic == MAGIC && record.sequence > 0)
    }
}

impl<F: NorFlash, const BUFFER: usize> Take for Area<F, BUFFER> {
    #[inline(never)]
    fn take(&mut self, mut bytes: &mut [u8]) -> Outcome {
        if bytes.len() > self.size.saturating_sub(self.at) as usize {
            return Err(Fault::CutShort);
        }
        if F::READ_SIZE == 1 {
            self.flash.read(self.begin + self.at, bytes).map_err(|_| FAILED)?;
            self.at += bytes.len() as u32;
            return Ok(());
        }
        while !bytes.is_empty() {
            let place = self.at % BUFFER as u32;
            let block = self.at - place;
            let words = self.words.get_mut(..BUFFER.min((self.size - block) as usize)).unwrap_or_default();
            if self.held != block {
                self.flash.read(self.begin + block, words).map_err(|_| FAILED)?;
                self.held = block;
            }
            let held = words.get(place as usize..).unwrap_or_default();
            let (taken, rest) = bytes.split_at_mut(held.len().min(bytes.len()));
            taken.iter_mut().zip(held).for_each(|(byte, held)| *byte = *held);
            self.at += taken.len() as u32;
            bytes = rest;
        }
        Ok(())
    }
}

impl<F: NorFlash, const BUFFER: usize> Put for Area<F, BUFFER> {
    /// Buffers bytes and writes them when the buffer is full.
    #[inline(never)]
    fn put(&mut self, mut bytes: &[u8]) -> Outcome {
        while !bytes.is_empty() {
            self.held = self.held.min(self.at);
            let free = self.words.get_mut((self.at % BUFFER as u32) as usize..).unwrap_or_default();
            let length = free.len().min(bytes.len());
            let (taken, rest) = bytes.split_at_checked(length).filter(|_| length > 0).ok_or(FAILED)?;
            free.get_mut(..length).unwrap_or_default().copy_from_slice(taken);
            self.at += length as u32;
            if length == free.len() {
                self.flush()?;
            }
            bytes = rest;
        }
        Ok(())
    }
}
