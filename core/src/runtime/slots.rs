//! Checkpoints in flash that survive a loss of power: two or more slots, written in turn.
//!
//! A slot consists of a record, a commit word, and a checkpoint. A save erases the slot after the newest complete one and writes the
//! checkpoint. It then writes the record (sequence number, length, checksum) and finally the commit word, which clears all of the word's
//! bits. A commit word that was interrupted at any bit commits nothing. Until it is complete, the newest complete slot is unchanged.
//! `SPEC.md` specifies the bytes.

use crate::base::error::{Error, Result};
use crate::runtime::checkpoint::{Contents, Fault, Outcome, Put, Take};
use crate::runtime::exec::Session;
use crate::runtime::program::{Checksum, NONE};
use bytemuck::{Pod, Zeroable};
use core::ops::Range;
use embedded_io::ErrorKind;
use embedded_storage::nor_flash::NorFlash;

/// The first four bytes of a slot's record.
pub const MAGIC: [u8; 4] = *b"GRDS";
/// Size of a record with its checksum, in bytes.
const RECORD: usize = size_of::<Committed>() + 4;

/// The fault for any error of the flash driver. The driver's own error is not kept: gradlet only requests aligned ranges inside the
/// flash, so the error is specific to the driver.
const FAILED: Fault = Fault::Io(ErrorKind::Other);

/// Checkpoints in a range of NOR flash.
///
/// `BUFFER` is the number of bytes that are written or read together. It must be a multiple of the flash's `WRITE_SIZE` and `READ_SIZE`.
///
/// ```no_run
/// use embedded_storage::nor_flash::NorFlash;
/// use gradlet_core::Session;
/// use gradlet_core::runtime::Slots;
/// use gradlet_core::runtime::checkpoint::Contents;
/// # fn train(session: &mut Session<'_, '_>) -> gradlet_core::Result<()> { Ok(()) }
/// fn firmware(flash: impl NorFlash, session: &mut Session<'_, '_>) -> gradlet_core::Result<()> {
///     let mut slots = Slots::new(flash, 0x10_0000..0x11_0000, 2)?;
///     slots.restore(session)?; // continues from the newest complete checkpoint, or from the artifact's values
///     loop {
///         train(session)?;
///         slots.save(session, Contents::Changed)?;
///     }
/// }
/// ```
pub struct Slots<F, const BUFFER: usize = 64> {
    flash: F,
    start: u32,
    /// Size of a slot, in bytes.
    size: u32,
    count: u32,
    /// Buffer for the bytes that were read or that wait to be written.
    words: [u8; BUFFER],
    /// Offset in flash of the slot that is being read or written.
    begin: u32,
    /// Offset of the next byte, from the start of the slot.
    at: u32,
    /// Offset of the first byte of `words`, from the start of the slot; [`NONE`] if the buffer is empty.
    held: u32,
    /// Checksum of the bytes that were read or written since the last seek.
    sum: Checksum,
}

/// The record of a committed slot.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Committed {
    magic: [u8; 4],
    /// The sequence number, from 1 on. A higher number is newer.
    sequence: u32,
    bytes: u32,
    checksum: u32,
}

impl<F: NorFlash> Slots<F> {
    /// Divides the bytes `range` of `flash` into `count` slots. Each slot gets the same number of whole erase blocks, as many as fit.
    ///
    /// Nothing is read or erased. Fails with [`Error::Slots`] in these cases: `count` is less than two, a slot is smaller than an erase
    /// block, `range` does not begin at an erase block or ends past the end of the flash, or 64 bytes are not a multiple of the flash's
    /// words ([`Slots::with_buffer`] takes another buffer size).
    pub fn new(flash: F, range: Range<u32>, count: u32) -> Result<Slots<F>> {
        Slots::with_buffer(flash, range, count)
    }
}

impl<F: NorFlash, const BUFFER: usize> Slots<F, BUFFER> {
    /// Number of bytes before the checkpoint in a slot: the record and the commit word, each rounded up to whole words.
    const HEAD: u32 = (RECORD.next_multiple_of(F::WRITE_SIZE) + F::WRITE_SIZE) as u32;

    /// Creates the slots like [`Slots::new`], with a buffer of `BUFFER` bytes.
    pub fn with_buffer(flash: F, range: Range<u32>, count: u32) -> Result<Slots<F, BUFFER>> {
        let block = F::ERASE_SIZE as u32;
        let words = [F::READ_SIZE, F::WRITE_SIZE];
        let whole = words.iter().all(|&word| BUFFER.checked_rem(word) == Some(0) && F::ERASE_SIZE.checked_rem(word) == Some(0));
        let inside = range.start <= range.end && range.end as usize <= flash.capacity() && range.start.checked_rem(block) == Some(0);
        let size = range.len() as u32 / count.max(2) / block.max(1) * block;
        if !whole || !inside || count < 2 || size == 0 {
            return Err(Error::Slots);
        }
        Ok(Slots { flash, start: range.start, size, count, words: [0; BUFFER], begin: 0, at: 0, held: NONE, sum: Checksum::NEW })
    }

    /// Returns the flash.
    pub fn into_inner(self) -> F {
        self.flash
    }

    /// Writes a checkpoint of the session into the slot after the newest complete one. Returns its sequence number: 1 for the first
    /// checkpoint, then one more each time.
    ///
    /// If power fails at any time, [`Slots::restore`] finds either this checkpoint or the one that it would have found before.
    ///
    /// Fails with [`Error::Unfinished`], [`Error::VariableNotFinite`] (see [`Session::save`]) or [`Error::SlotTooSmall`] before anything is
    /// erased, with [`Error::Io`] if the flash does, and with [`Error::Worn`] if
    /// the flash does not hold the checkpoint's bytes. After a failure the next save tries the same slot again. The record and the commit
    /// word are not read back.
    pub fn save(&mut self, session: &Session<'_, '_>, contents: Contents) -> Result<u32> {
        session.savable(contents)?;
        let bytes = session.checkpoint_len(contents);
        let needed = bytes.saturating_add(Self::HEAD);
        if needed > self.size {
            return Err(Error::SlotTooSmall { needed, got: self.size });
        }
        let (highest, newest, _) = self.newest_whole();
        let slot = if newest.wrapping_add(1) < self.count { newest.wrapping_add(1) } else { 0 };
        let sequence = highest.checked_add(1).ok_or(Error::TooLarge)?;

        let outcome = self.write(session, contents, slot, Committed { magic: MAGIC, sequence, bytes, checksum: 0 });
        outcome.map_err(|fault| fault.error(slot))?;
        Ok(sequence)
    }

    /// Writes the checkpoint, then the record, then the commit word.
    fn write(&mut self, session: &Session<'_, '_>, contents: Contents, slot: u32, mut record: Committed) -> Outcome {
        self.seek(slot, Self::HEAD);
        let end = self.begin + (Self::HEAD + record.bytes).next_multiple_of(F::ERASE_SIZE as u32);
        self.flash.erase(self.begin, end).map_err(|_| FAILED)?;
        session.save_to(self, contents)?;
        record.checksum = self.sum.get();
        self.flush()?;
        if !self.is_whole(slot, &record) {
            return Err(Fault::Worn);
        }
        self.seek(slot, 0);
        self.put(bytemuck::bytes_of(&record))?;
        self.put(&self.sum.get().to_le_bytes())?;
        self.flush()?;
        self.words.fill(0);
        self.at += F::WRITE_SIZE as u32;
        self.flush()
    }

    /// Sets the session's variables to the newest complete checkpoint, which must belong to this artifact. Returns its sequence number,
    /// or `None` if no slot is committed; the session is then unchanged. A slot whose record the flash cannot read counts as not
    /// committed, so the caller makes sure that the flash works first.
    ///
    /// The bytes of a checkpoint are checked before any variable changes. If they are damaged, the next older checkpoint is used.
    ///
    /// Fails with [`Error::Damaged`] if slots are committed but none is complete. Fails like [`Session::restore`] with the newest
    /// complete checkpoint: [`Error::OtherArtifact`], for example after a firmware update, leaves the session unchanged.
    pub fn restore(&mut self, session: &mut Session<'_, '_>) -> Result<Option<u32>> {
        match self.newest_whole() {
            (0, ..) => Ok(None),
            (_, _, 0) => Err(Error::Damaged { variable: None }),
            (_, slot, sequence) => {
                self.seek(slot, Self::HEAD);
                session.restore_from(self)?;
                Ok(Some(sequence))
            }
        }
    }

    /// Returns three numbers: the highest committed sequence number; the newest slot whose checkpoint has the stored checksum, or
    /// [`NONE`]; and the sequence number of that slot, or 0.
    #[inline(never)]
    fn newest_whole(&mut self) -> (u32, u32, u32) {
        let (mut highest, mut newest) = (0, (NONE, 0));
        for slot in 0..self.count {
            let Some(record) = self.committed(slot) else { continue };
            highest = record.sequence.max(highest);
            if record.sequence > newest.1 && self.is_whole(slot, &record) {
                newest = (slot, record.sequence);
            }
        }
        (highest, newest.0, newest.1)
    }

    /// Returns the record of slot `slot` if the slot is committed. A slot that cannot be read is not committed.
    #[inline(always)]
    fn committed(&mut self, slot: u32) -> Option<Committed> {
        let (mut record, mut sum, mut byte) = (Committed::zeroed(), [0; 4], [0]);
        self.seek(slot, 0);
        self.take(bytemuck::bytes_of_mut(&mut record)).ok()?;
        let computed = self.sum.get().to_le_bytes();
        self.take(&mut sum).ok()?;
        self.seek(slot, Self::HEAD - F::WRITE_SIZE as u32);
        let committed = (0..F::WRITE_SIZE).all(|_| self.take(&mut byte).is_ok() && byte == [0]);
        (committed && record.magic == MAGIC && sum == computed).then_some(record)
    }

    /// True if the checkpoint in slot `slot` has the checksum in `record`, the slot's record.
    #[inline(never)]
    fn is_whole(&mut self, slot: u32, record: &Committed) -> bool {
        self.seek(slot, Self::HEAD);
        let mut byte = [0];
        (0..record.bytes).all(|_| self.take(&mut byte).is_ok()) && self.sum.get() == record.checksum
    }

    /// Moves to byte `at` of a slot, empties the buffer and restarts the checksum.
    #[inline(never)]
    fn seek(&mut self, slot: u32, at: u32) {
        (self.begin, self.at, self.held, self.sum) = (self.start + slot * self.size, at, NONE, Checksum::NEW);
    }

    /// Writes the buffered bytes in whole words. The rest of the last word stays erased (0xff).
    #[inline(never)]
    fn flush(&mut self) -> Outcome {
        let filled = self.at.saturating_sub(self.held) as usize;
        let end = filled.next_multiple_of(F::WRITE_SIZE);
        self.words.get_mut(filled..end).unwrap_or_default().fill(0xff);
        if filled > 0 {
            self.flash.write(self.begin + self.held, self.words.get(..end).unwrap_or_default()).map_err(|_| FAILED)?;
            self.at = self.held + end as u32;
            self.held = self.at;
        }
        Ok(())
    }
}

impl<F: NorFlash, const BUFFER: usize> Take for Slots<F, BUFFER> {
    #[inline(never)]
    fn take(&mut self, bytes: &mut [u8]) -> Outcome {
        for byte in &mut *bytes {
            if self.at >= self.size {
                return Err(Fault::CutShort);
            }
            let place = self.at % BUFFER as u32;
            let block = self.at - place;
            if self.held != block {
                let words = self.words.get_mut(..BUFFER.min((self.size - block) as usize)).unwrap_or_default();
                self.flash.read(self.begin + block, words).map_err(|_| FAILED)?;
                self.held = block;
            }
            *byte = self.words.get(place as usize).copied().unwrap_or_default();
            self.at += 1;
        }
        self.sum = self.sum.add(bytes);
        Ok(())
    }
}

impl<F: NorFlash, const BUFFER: usize> Put for Slots<F, BUFFER> {
    /// Buffers bytes and writes them when the buffer is full.
    #[inline(never)]
    fn put(&mut self, bytes: &[u8]) -> Outcome {
        self.sum = self.sum.add(bytes);
        for &byte in bytes {
            self.held = self.held.min(self.at);
            if let Some(free) = self.words.get_mut((self.at - self.held) as usize) {
                *free = byte;
            }
            self.at += 1;
            if self.at - self.held == BUFFER as u32 {
                self.flush()?;
            }
        }
        Ok(())
    }
}
