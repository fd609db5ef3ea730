//! Checkpoints in flash that survive a loss of power: two or more slots, written in turn.
//!
//! A slot consists of a record, a commit word, and a checkpoint. A save erases a slot other than the newest complete one and writes the
//! checkpoint. It then writes the record (sequence number, length, checksum) and finally the commit word, which clears all of the word's
//! bits. A commit word that was interrupted at any bit commits nothing. Until it is complete, the newest complete slot is unchanged.
//! `SPEC.md` specifies the bytes.

use crate::base::error::{Error, Result};
use crate::runtime::checkpoint::{Contents, Fault, Header, Identity, Outcome, Put, Reading, Take};
use crate::runtime::exec::Session;
use crate::runtime::program::{Checksum, NONE, Program, checksum};
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
///     slots.restore(session)?; // continues from this artifact's newest complete checkpoint, or from its own values
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
    /// Checksum of the bytes that were written since the last seek.
    sum: Checksum,
}

/// A slot with a committed checkpoint, as [`Slots::list`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The sequence number. A higher number is newer.
    pub sequence: u32,
    /// Size of the checkpoint, in bytes.
    pub bytes: u32,
    /// The artifact that the checkpoint belongs to, or `None` if the checkpoint's header is damaged.
    pub artifact: Option<Identity>,
    /// True if the checkpoint has the stored checksum.
    pub whole: bool,
}

/// The result of a search for the newest complete checkpoint of an artifact.
struct Found {
    /// The slot, or [`NONE`].
    slot: u32,
    /// Its sequence number, or 0.
    sequence: u32,
    /// The highest sequence number of all committed slots.
    highest: u32,
    /// The reason why a slot that may belong to the artifact is not complete.
    fault: Option<Fault>,
}

/// The record of a committed slot.
#[derive(Clone, Copy, PartialEq, Pod, Zeroable)]
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

    /// Writes a checkpoint of the session into another slot than this artifact's newest complete one. Returns its sequence number: 1 for
    /// the first checkpoint, then one more each time.
    ///
    /// The slots are used in turn. A checkpoint of another artifact is erased only if every other slot holds one too, or the newest one of
    /// this artifact; the one with the lowest sequence number is erased first.
    ///
    /// If power fails at any time, [`Slots::restore`] finds either this checkpoint or the one that it would have found before.
    ///
    /// Fails with [`Error::Unfinished`], [`Error::VariableNotFinite`] (see [`Session::save`]) or [`Error::SlotTooSmall`] before anything is
    /// erased, with [`Error::Io`] if the flash does, and with [`Error::Worn`] if the flash does not hold the bytes of the checkpoint and of
    /// its record. After a failure the next save tries the same slot again. The commit word, which comes last, is not read back.
    pub fn save(&mut self, session: &Session<'_, '_>, contents: Contents) -> Result<u32> {
        session.savable(contents)?;
        let bytes = session.checkpoint_len(contents);
        let needed = bytes.saturating_add(Self::HEAD);
        if needed > self.size {
            return Err(Error::SlotTooSmall { needed, got: self.size });
        }
        let own = session.program().identity();
        let found = self.newest(own, u32::MAX);
        let slot = self.next(own, found.slot);
        let sequence = found.highest.checked_add(1).ok_or(Error::TooLarge)?;

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
        if !self.is_whole(slot, &record)? {
            return Err(Fault::Worn);
        }
        self.seek(slot, 0);
        self.put(bytemuck::bytes_of(&record))?;
        let sum = self.sum.get().to_le_bytes();
        self.put(&sum)?;
        self.flush()?;
        let (written, end) = (record, self.at);
        if self.record(slot)? != (written, sum) {
            return Err(Fault::Worn);
        }
        (self.at, self.held) = (end + F::WRITE_SIZE as u32, end);
        self.words.fill(0);
        self.flush()
    }

    /// Sets the session's variables to the newest complete checkpoint of this artifact. Returns its sequence number, or `None` if there is
    /// none; the session is then unchanged. Slots of other artifacts are left out.
    ///
    /// The bytes of a checkpoint are checked before any variable changes. If they are damaged or cannot be read, the next older checkpoint
    /// is used.
    ///
    /// If no checkpoint can be restored, fails with [`Error::Io`] if a slot could not be read, otherwise with [`Error::Damaged`] if a slot
    /// is committed but damaged. Fails like [`Session::restore`] with the checkpoint that it chose.
    pub fn restore(&mut self, session: &mut Session<'_, '_>) -> Result<Option<u32>> {
        self.restore_up_to(session, u32::MAX)
    }

    /// Restores like [`Slots::restore`], but leaves out checkpoints with a sequence number above `sequence`. [`Slots::list`] returns the
    /// sequence numbers.
    pub fn restore_up_to(&mut self, session: &mut Session<'_, '_>, sequence: u32) -> Result<Option<u32>> {
        let Some((slot, sequence)) = self.find(session.program().identity(), sequence)? else { return Ok(None) };
        self.seek(slot, Self::HEAD);
        session.restore_from(self)?;
        Ok(Some(sequence))
    }

    /// Restores the newest complete checkpoint of another artifact, for example of the model before an update: see
    /// [`Session::restore_other`]. Returns its sequence number, or `None` if there is none.
    pub fn restore_other(&mut self, session: &mut Session<'_, '_>, old: &Program<'_>) -> Result<Option<u32>> {
        let Some((slot, sequence)) = self.find(old.identity(), u32::MAX)? else { return Ok(None) };
        self.seek(slot, Self::HEAD);
        session.restore_other_from(old, self)?;
        Ok(Some(sequence))
    }

    /// Returns the committed slots, in the order of the flash. A slot that cannot be read is an [`Error::Io`].
    pub fn list(&mut self) -> impl Iterator<Item = Result<Slot>> {
        (0..self.count).filter_map(|slot| self.whole_slot(slot).map_err(|fault| fault.error(slot)).transpose())
    }

    /// Erases the newest complete checkpoint of the session's artifact. Returns its sequence number, or `None` if there is none. Afterwards
    /// [`Slots::restore`] finds the one before. The session is unchanged.
    ///
    /// If power fails meanwhile, the checkpoint is either still complete or discarded. Fails like [`Slots::restore`], and with
    /// [`Error::Io`] if the flash cannot be erased.
    pub fn discard_newest(&mut self, session: &Session<'_, '_>) -> Result<Option<u32>> {
        let Some((slot, sequence)) = self.find(session.program().identity(), u32::MAX)? else { return Ok(None) };
        self.seek(slot, 0);
        // The first block holds the record, without which a slot is not committed.
        let erased = self.flash.erase(self.begin, self.begin + F::ERASE_SIZE as u32);
        erased.map_err(|_| FAILED.error(slot))?;
        Ok(Some(sequence))
    }

    /// Returns the newest complete slot of the artifact `own` up to sequence number `limit`, and its sequence number.
    fn find(&mut self, own: Identity, limit: u32) -> Result<Option<(u32, u32)>> {
        match self.newest(own, limit) {
            Found { sequence: 0, fault, .. } => fault.map_or(Ok(None), |fault| Err(fault.error(NONE))),
            Found { slot, sequence, .. } => Ok(Some((slot, sequence))),
        }
    }

    /// Searches all slots for the newest complete one of the artifact `own` up to sequence number `limit`.
    #[inline(never)]
    fn newest(&mut self, own: Identity, mut limit: u32) -> Found {
        let (mut highest, mut fault) = (0, None);
        loop {
            // The newest checkpoint first, because checking one takes time.
            let (mut slot, mut newest) = (NONE, Committed::zeroed());
            for number in 0..self.count {
                match self.slot(number) {
                    Err(unreadable) => fault = Some(unreadable),
                    Ok(None) => (),
                    Ok(Some((record, artifact))) => {
                        highest = record.sequence.max(highest);
                        if artifact == Some(own) && record.sequence > newest.sequence && record.sequence <= limit {
                            (slot, newest) = (number, record);
                        }
                        fault = fault.or(if artifact.is_none() { Some(Fault::Damaged) } else { None });
                    }
                }
            }
            match if slot == NONE { Ok(true) } else { self.is_whole(slot, &newest) } {
                Ok(true) => return Found { slot, sequence: newest.sequence, highest, fault },
                Ok(false) => fault = fault.or(Some(Fault::Damaged)),
                Err(unreadable) => fault = Some(unreadable),
            }
            limit = newest.sequence - 1;
        }
    }

    /// Returns the slot that the next save erases: the first one after `newest` that holds no checkpoint of another artifact than `own`,
    /// or else the one with the oldest checkpoint.
    fn next(&mut self, own: Identity, newest: u32) -> u32 {
        let (mut number, mut oldest, mut other) = (newest, NONE, 0);
        for _ in 0..self.count {
            number = if number.wrapping_add(1) < self.count { number.wrapping_add(1) } else { 0 };
            match self.slot(number) {
                _ if number == newest => (),
                Ok(Some((record, Some(artifact)))) if artifact != own => {
                    if record.sequence < oldest {
                        (oldest, other) = (record.sequence, number);
                    }
                }
                _ => return number,
            }
        }
        other
    }

    /// Returns slot `slot` as [`Slots::list`] does, or `None` if it is not committed.
    fn whole_slot(&mut self, slot: u32) -> Outcome<Option<Slot>> {
        let Some((record, artifact)) = self.slot(slot)? else { return Ok(None) };
        let whole = self.is_whole(slot, &record)?;
        Ok(Some(Slot { sequence: record.sequence, bytes: record.bytes, artifact, whole }))
    }

    /// Returns the record of a slot and the artifact that the checkpoint's header names, or `None` if the slot is not committed. Fails if
    /// the flash cannot read it.
    #[inline(never)]
    fn slot(&mut self, slot: u32) -> Outcome<Option<(Committed, Option<Identity>)>> {
        match self.committed(slot) {
            // The slot ends too early to hold anything.
            Err(Fault::CutShort) | Ok(None) => Ok(None),
            Err(fault) => Err(fault),
            Ok(Some(record)) => {
                self.seek(slot, Self::HEAD);
                match Header::take(&mut Reading::new(self)) {
                    Ok(header) => Ok(Some((record, Some(header.artifact)))),
                    Err(fault @ Fault::Io(_)) => Err(fault),
                    Err(_) => Ok(Some((record, None))),
                }
            }
        }
    }

    /// Returns the record of a slot, or `None` if the slot is not committed.
    fn committed(&mut self, slot: u32) -> Outcome<Option<Committed>> {
        let (record, sum) = self.record(slot)?;
        let sound = record.magic == MAGIC && record.sequence > 0 && sum == checksum(bytemuck::bytes_of(&record)).to_le_bytes();
        self.seek(slot, Self::HEAD - F::WRITE_SIZE as u32);
        let mut byte = [0];
        for _ in 0..F::WRITE_SIZE {
            self.take(&mut byte)?;
            if !sound || byte != [0] {
                return Ok(None);
            }
        }
        Ok(Some(record))
    }

    /// Reads the record of a slot and its checksum.
    fn record(&mut self, slot: u32) -> Outcome<(Committed, [u8; 4])> {
        let (mut record, mut sum) = (Committed::zeroed(), [0; 4]);
        self.seek(slot, 0);
        self.take(bytemuck::bytes_of_mut(&mut record))?;
        self.take(&mut sum)?;
        Ok((record, sum))
    }

    /// True if the checkpoint in slot `slot` has the checksum in `record`, the slot's record.
    #[inline(never)]
    fn is_whole(&mut self, slot: u32, record: &Committed) -> Outcome<bool> {
        self.seek(slot, Self::HEAD);
        let (mut chunk, mut left, mut sum) = ([0; 64], record.bytes as usize, Checksum::NEW);
        while left > 0 {
            let chunk = chunk.get_mut(..left.min(64)).unwrap_or_default();
            match self.take(chunk) {
                Err(Fault::CutShort) => return Ok(false),
                other => other?,
            }
            sum = sum.add(chunk);
            left -= chunk.len();
        }
        Ok(sum.get() == record.checksum)
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

impl<F: NorFlash, const BUFFER: usize> Put for Slots<F, BUFFER> {
    /// Buffers bytes and writes them when the buffer is full.
    #[inline(never)]
    fn put(&mut self, mut bytes: &[u8]) -> Outcome {
        self.sum = self.sum.add(bytes);
        while !bytes.is_empty() {
            self.held = self.held.min(self.at);
            let free = self.words.get_mut((self.at - self.held) as usize..).unwrap_or_default();
            let length = free.len().min(bytes.len());
            let (taken, rest) = bytes.split_at_checked(length).filter(|_| length > 0).ok_or(FAILED)?;
            free.get_mut(..length).unwrap_or_default().copy_from_slice(taken);
            self.at += length as u32;
            if self.at - self.held == BUFFER as u32 {
                self.flush()?;
            }
            bytes = rest;
        }
        Ok(())
    }
}
