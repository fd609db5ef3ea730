//! Checkpoints in flash that survive a loss of power: two or more slots, written in turn.
//!
//! A slot consists of a record, a commit word, and a checkpoint. A save erases a slot other than the newest complete one and writes the
//! checkpoint. It then writes the record (sequence number, length, checksum) and finally the commit word, which clears all of the word's
//! bits. A commit word that was interrupted at any bit commits nothing. Until it is complete, the newest complete slot is unchanged.
//! `SPEC.md` specifies the bytes.

mod area;
mod restore;
mod save;
mod search;

use crate::base::error::{Error, Result};
use crate::runtime::checkpoint::{Contents, Fault, Identity, Outcome, Renamed, Target, Whole};
use crate::runtime::program::Program;
use crate::runtime::session::Session;
use area::{Area, State};
use bytemuck::{Pod, Zeroable};
use core::mem;
use core::ops::Range;
use core::task::Poll;
use embedded_io::ErrorKind;
use embedded_storage::nor_flash::NorFlash;
use restore::Restore;
use save::Save;
use search::{Search, Sum};

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
    area: Area<F, BUFFER>,
    /// Sequence number of the checkpoint that was checked or written last, or 0.
    known: u32,
    job: Job,
}

/// The save or the restore in progress.
enum Job {
    Idle,
    Save(Save),
    Restore(Restore),
}

/// A slot with a committed checkpoint, as [`Slots::list`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
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
    /// Creates the slots like [`Slots::new`], with a buffer of `BUFFER` bytes. A save compares what it has written in a
    /// second buffer of this size.
    pub fn with_buffer(flash: F, range: Range<u32>, count: u32) -> Result<Slots<F, BUFFER>> {
        Ok(Slots { area: Area::new(flash, range, count)?, known: 0, job: Job::Idle })
    }

    /// Returns the flash.
    pub fn into_inner(self) -> F {
        self.area.flash
    }

    /// Returns the flash, such as its driver. What is written there behind the back of the slots can damage their checkpoints.
    pub fn flash_mut(&mut self) -> &mut F {
        &mut self.area.flash
    }

    /// Writes a checkpoint of the session into another slot than this artifact's newest complete one. Returns its sequence number: 1 in
    /// empty slots, else one more than the highest in any slot.
    ///
    /// The slots are used in turn. A checkpoint of another artifact is erased only if every other slot holds one too, or the newest one of
    /// this artifact; the one with the lowest sequence number is erased first.
    ///
    /// If power fails at any time, [`Slots::restore`] finds either this checkpoint or the one that it would have found before. To know the
    /// latter, a save checks the bytes of the newest checkpoint, unless this value of `Slots` has written or restored it.
    ///
    /// Fails with [`Error::Unfinished`], [`Error::VariableNotFinite`] (see [`Session::save`]) or [`Error::SlotTooSmall`] before anything is
    /// erased, with [`Error::Io`] if the flash does, and with [`Error::Worn`] if the flash does not hold the bytes that were written. Every
    /// byte of the checkpoint and of its record is read back before the commit word is written, which commits the checkpoint. After a
    /// failure the next save tries the same slot again.
    pub fn save(&mut self, session: &Session<'_, '_>, contents: Contents) -> Result<u32> {
        self.job = Job::Idle;
        let mut save = Save::new(session, contents)?;
        save.advance(&mut self.area, &mut self.known, session, &mut Whole)?;
        Ok(save.record.sequence)
    }

    /// Begins a save. [`Slots::advance_save`] does the work, in slices. The checkpoint holds the variables as they are now.
    ///
    /// Between the slices, the session can run what changes no variable. Abandons an earlier save or restore. An abandoned save commits
    /// nothing. Fails with [`Error::Unfinished`].
    ///
    /// ```no_run
    /// use gradlet_core::runtime::checkpoint::Contents;
    /// # use embedded_storage::nor_flash::NorFlash;
    /// # use gradlet_core::{Session, runtime::Slots};
    /// # fn watchdog() {}
    /// # fn firmware(slots: &mut Slots<impl NorFlash>, session: &mut Session<'_, '_>) -> gradlet_core::Result<()> {
    /// slots.begin_save(session, Contents::Changed)?;
    /// while slots.advance_save(session, 20_000)?.is_pending() {
    ///     watchdog(); // or yield to other tasks
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_save(&mut self, session: &Session<'_, '_>, contents: Contents) -> Result<()> {
        self.job = Job::Save(Save::new(session, contents)?);
        Ok(())
    }

    /// Goes on with the save that [`Slots::begin_save`] began, for about `budget` instructions of a Cortex-M4, not counting those of the
    /// flash driver. Returns the sequence number when the save is done. A slice erases one block at most.
    ///
    /// Fails like [`Slots::save`]. Fails with [`Error::Interrupted`] if no save is in progress, which is so after any other method of
    /// `Slots`, or if a variable of the session has changed since the save began. The save is then over. `session` can be one that has
    /// resumed in between, in the same memory.
    pub fn advance_save(&mut self, session: &Session<'_, '_>, budget: u32) -> Result<Poll<u32>> {
        let Job::Save(mut save) = mem::replace(&mut self.job, Job::Idle) else { return Err(Error::Interrupted) };
        if save.advance(&mut self.area, &mut self.known, session, &mut budget.max(1))? {
            return Ok(Poll::Ready(save.record.sequence));
        }
        self.job = Job::Save(save);
        Ok(Poll::Pending)
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
        self.restore_whole(session.program(), session, sequence)
    }

    /// Begins a restore of the newest complete checkpoint with a sequence number up to `sequence`; `u32::MAX` allows every number.
    /// [`Slots::advance_restore`] does the work, in slices. Abandons an earlier save or restore.
    ///
    /// ```no_run
    /// # use embedded_storage::nor_flash::NorFlash;
    /// # use gradlet_core::{Session, runtime::Slots};
    /// # fn watchdog() {}
    /// # fn firmware(slots: &mut Slots<impl NorFlash>, session: &mut Session<'_, '_>) -> gradlet_core::Result<()> {
    /// slots.begin_restore(u32::MAX);
    /// while slots.advance_restore(session, 20_000)?.is_pending() {
    ///     watchdog(); // or yield to other tasks
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_restore(&mut self, sequence: u32) {
        self.job = Job::Restore(Restore::new(sequence));
    }

    /// Goes on with the restore that [`Slots::begin_restore`] began, for about `budget` instructions of a Cortex-M4, not counting those of
    /// the flash driver. Returns the result of [`Slots::restore`] when the restore is done.
    ///
    /// The session is unchanged until all bytes of the checkpoint are checked. Then a run in progress is abandoned, and the session is
    /// unfinished until the restore is done.
    ///
    /// Fails like [`Slots::restore`]. Fails with [`Error::Interrupted`] if no restore is in progress, which is so after any other method of
    /// `Slots`, or if the session was reset meanwhile. The restore is then over.
    pub fn advance_restore(&mut self, session: &mut Session<'_, '_>, budget: u32) -> Result<Poll<Option<u32>>> {
        let Job::Restore(mut restore) = mem::replace(&mut self.job, Job::Idle) else { return Err(Error::Interrupted) };
        let outcome = restore.advance(&mut self.area, &mut self.known, session.program(), session, &mut budget.max(1))?;
        if outcome.is_pending() {
            self.job = Job::Restore(restore);
        }
        Ok(outcome)
    }

    /// Restores the newest complete checkpoint of another artifact, for example of the model before an update: see
    /// [`Session::restore_other`]. Returns its sequence number, or `None` if there is none.
    pub fn restore_other(&mut self, session: &mut Session<'_, '_>, old: &Program<'_>) -> Result<Option<u32>> {
        self.restore_whole(old, &mut Renamed::new(session, old), u32::MAX)
    }

    fn restore_whole<'p, 'm>(&mut self, program: &Program<'_>, target: &mut impl Target<'p, 'm>, sequence: u32) -> Result<Option<u32>> {
        self.job = Job::Idle;
        let mut restore = Restore::new(sequence);
        loop {
            if let Poll::Ready(restored) = restore.advance(&mut self.area, &mut self.known, program, target, &mut Whole)? {
                return Ok(restored);
            }
        }
    }

    /// Returns the committed slots, in the order of the flash. A slot that cannot be read is an [`Error::Io`].
    pub fn list(&mut self) -> impl Iterator<Item = Result<Slot>> {
        self.job = Job::Idle;
        (0..self.area.count).filter_map(|slot| self.whole_slot(slot).map_err(|fault| fault.error(slot)).transpose())
    }

    /// Returns slot `slot` as [`Slots::list`] does, or `None` if it is not committed.
    fn whole_slot(&mut self, slot: u32) -> Outcome<Option<Slot>> {
        let artifact = match self.area.slot(slot)? {
            State::Free => return Ok(None),
            State::Damaged => None,
            State::Taken => Some(self.area.artifact),
        };
        let Committed { sequence, bytes, checksum, .. } = self.area.record;
        self.area.seek(slot, Area::<F, BUFFER>::HEAD);
        let whole = match Sum::new(bytes).advance(&mut self.area, &mut Whole) {
            Err(Fault::CutShort) => false,
            sum => sum? == Some(checksum),
        };
        Ok(Some(Slot { sequence, bytes, artifact, whole }))
    }

    /// Erases the newest complete checkpoint of the session's artifact. Returns its sequence number, or `None` if there is none. Afterwards
    /// [`Slots::restore`] finds the one before. The session is unchanged.
    ///
    /// If power fails meanwhile, the checkpoint is either still complete or discarded. Fails like [`Slots::restore`], and with
    /// [`Error::Io`] if the flash cannot be erased.
    pub fn discard_newest(&mut self, session: &Session<'_, '_>) -> Result<Option<u32>> {
        self.job = Job::Idle;
        let mut search = Search::new(u32::MAX);
        search.advance(&mut self.area, session.program().identity(), 0, &mut Whole);
        let Some(slot) = search.found()? else { return Ok(None) };
        // The first block holds the record, without which a slot is not committed.
        self.area.seek(slot, 0);
        self.area.erase(0, 1).map_err(|fault| fault.error(slot))?;
        Ok(Some(search.record.sequence))
    }
}
