//! Checkpoints in NOR flash, which survive a loss of power at any time.

use crate::checkpoint::contents;
use crate::memory::{self, Checked, Out, Region};
use crate::outcome::{Code, Outcome};
use crate::place::{self, Taken, place};
use crate::program::Program;
use crate::session::{self, Session};
use core::ffi::c_void;
use core::task::Poll;
use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash};
use gradlet_core::Error;
use gradlet_core::runtime::Slots as Kept;

/// Size of a `gradlet_slots`, in words of a pointer's size.
pub const GRADLET_SLOTS_WORDS: usize = 144;

/// Bytes that are read and written together. The flash's own words divide them.
const CHUNK: usize = 64;

/// Two or more slots in flash, which hold checkpoints in turn. The struct stays where it is.
#[repr(C)]
pub struct Slots {
    words: [usize; GRADLET_SLOTS_WORDS],
}

place!(Slots: Kept<Driver>, b"slot");

/// A driver of NOR flash. Each function returns 0 if it succeeds, and receives `context`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Flash {
    /// The first argument of the functions.
    pub context: *mut c_void,
    /// Reads `count` bytes at `offset`. Both are multiples of 64.
    pub read: Option<unsafe extern "C" fn(context: *mut c_void, offset: u32, bytes: *mut u8, count: usize) -> i32>,
    /// Writes `count` bytes at `offset`, which are erased. Both are multiples of 64.
    pub write: Option<unsafe extern "C" fn(context: *mut c_void, offset: u32, bytes: *const u8, count: usize) -> i32>,
    /// Erases the block at `offset`.
    pub erase: Option<unsafe extern "C" fn(context: *mut c_void, offset: u32) -> i32>,
    /// Size of the flash in bytes.
    pub capacity: u32,
    /// Size of a block that is erased together, in bytes: a multiple of 64.
    pub block: u32,
}

/// A driver whose functions exist.
pub struct Driver {
    context: *mut c_void,
    read: unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize) -> i32,
    write: unsafe extern "C" fn(*mut c_void, u32, *const u8, usize) -> i32,
    erase: unsafe extern "C" fn(*mut c_void, u32) -> i32,
    capacity: u32,
    block: u32,
    /// True after an erasure of a part that does not begin a block, which needs no work.
    idle: bool,
}

/// A committed checkpoint in a slot.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slot {
    /// The sequence number. A higher number is newer.
    pub sequence: u32,
    /// Size of the checkpoint in bytes.
    pub bytes: u32,
    /// Length of the artifact that the checkpoint belongs to, or 0 if that is not known.
    pub artifact_bytes: u32,
    /// Checksum of that artifact.
    pub artifact_checksum: u32,
    /// True if the checkpoint is intact.
    pub whole: bool,
}

/// Initialises `count` slots in the bytes of a flash from `start` up to `end`. `start` begins a block, and each slot gets the same number
/// of whole blocks. Nothing is read or erased. The driver is copied.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_init(slots: *mut Slots, flash: *const Flash, start: u32, end: u32, count: u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe {
            let own = place::begin(0, slots)?;
            own.apart(&Region::of(1, flash)?)?;
            place::clear(slots);
            let driver = Driver::new(&*flash)?;
            let block = driver.block;
            // The size of a slot in whole blocks. Core divides the range of so many slots into the same ones.
            let length = end.checked_sub(start).ok_or(Error::Slots)?;
            let size = length.checked_div(count).and_then(|size| size.checked_div(block)).ok_or(Error::Slots)? * block;
            if size == 0 || !start.is_multiple_of(block) || !block.is_multiple_of(CHUNK as u32) {
                return Err(Error::Slots.into());
            }
            place::put(slots, Kept::new(driver, start..start + size * count, count)?);
        }
        Ok(())
    })
}

/// Saves the variables of a session in another slot than the newest checkpoint's. Stores the number of the new checkpoint in `sequence`. If
/// power fails at any time, a restore finds either this checkpoint or the one before. `contents` is one of `enum gradlet_contents`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_save(slots: *mut Slots, session: *mut Session, contents: u32, sequence: *mut u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut slots, session) = unsafe { (place::take(0, slots)?, session::take(1, session)?) };
        let sequence = out(&slots, &session, 3, sequence)?;
        // SAFETY: as above.
        unsafe { sequence.set(slots.save(&session.session, self::contents(2, contents)?)?) };
        Ok(())
    })
}

/// Begins a save. gradlet_slots_advance_save does the work, in slices.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_begin_save(slots: *mut Slots, session: *mut Session, contents: u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut slots, session) = unsafe { (place::take(0, slots)?, session::take(1, session)?) };
        Ok(slots.begin_save(&session.session, self::contents(2, contents)?)?)
    })
}

/// Goes on with a save for about `budget` instructions of a Cortex-M4. Stores the number of the checkpoint in `sequence` when the save is
/// done, and 0 before.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_advance_save(slots: *mut Slots, session: *mut Session, budget: u32, sequence: *mut u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut slots, session) = unsafe { (place::take(0, slots)?, session::take(1, session)?) };
        let sequence = out(&slots, &session, 3, sequence)?;
        let number = loop {
            slots.flash_mut().idle = false;
            match slots.advance_save(&session.session, budget)? {
                Poll::Pending if slots.flash_mut().idle => (),
                Poll::Pending => break 0,
                Poll::Ready(number) => break number,
            }
        };
        // SAFETY: as above.
        unsafe { sequence.set(number) };
        Ok(())
    })
}

/// Sets the variables of a session to the newest complete checkpoint of its artifact with a number up to `most`; UINT32_MAX allows every
/// number. Stores the checkpoint's number in `sequence`, or 0 if there is none; the session is then unchanged.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_restore(slots: *mut Slots, session: *mut Session, most: u32, sequence: *mut u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut slots, mut session) = unsafe { (place::take(0, slots)?, session::take(1, session)?) };
        let sequence = out(&slots, &session, 3, sequence)?;
        // SAFETY: as above.
        unsafe { sequence.set(slots.restore_up_to(&mut session.session, most)?.unwrap_or(0)) };
        Ok(())
    })
}

/// Begins a restore of the newest complete checkpoint with a number up to `most`. gradlet_slots_advance_restore does the work, in slices.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_begin_restore(slots: *mut Slots, most: u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe { place::take(0, slots)? }.begin_restore(most);
        Ok(())
    })
}

/// Goes on with a restore for about `budget` instructions of a Cortex-M4. Stores in `done` whether the restore is done, and then in
/// `sequence` what gradlet_slots_restore stores.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_advance_restore(
    slots: *mut Slots,
    session: *mut Session,
    budget: u32,
    done: *mut bool,
    sequence: *mut u32,
) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut slots, mut session) = unsafe { (place::take(0, slots)?, session::take(1, session)?) };
        let done = out(&slots, &session, 3, done)?;
        let sequence = out(&slots, &session, 4, sequence)?;
        done.region().apart(&sequence.region())?;
        let restored = slots.advance_restore(&mut session.session, budget)?;
        let number = if let Poll::Ready(Some(number)) = restored { number } else { 0 };
        // SAFETY: as above.
        unsafe {
            done.set(restored.is_ready());
            sequence.set(number);
        }
        Ok(())
    })
}

/// Restores the newest complete checkpoint of another artifact, `old`, as gradlet_session_restore_other does. Stores the checkpoint's
/// number in `sequence`, or 0 if there is none.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_restore_other(
    slots: *mut Slots,
    session: *mut Session,
    old: *const Program,
    sequence: *mut u32,
) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut slots, mut session, old) = unsafe { (place::take(0, slots)?, session::take(1, session)?, place::look(2, old)?) };
        let sequence = out(&slots, &session, 3, sequence)?;
        // SAFETY: as above.
        unsafe { sequence.set(slots.restore_other(&mut session.session, &old.program)?.unwrap_or(0)) };
        Ok(())
    })
}

/// Stores the committed slots in `list`, which has room for `room`, in the order of the flash, and their number in `count`. If there are
/// more, fails with GRADLET_CODE_BUFFER_TOO_SMALL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_list(slots: *mut Slots, list: *mut Slot, room: usize, count: *mut usize) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe {
            let mut slots = place::take(0, slots)?;
            let region = Region::new(1, list.cast(), room.saturating_mul(size_of::<Slot>()), align_of::<Slot>())?;
            let own = slots.region(0);
            region.apart(&own)?;
            let count = Out::new(3, count, &[own, region])?;
            let mut found = 0;
            for slot in slots.list() {
                let slot = slot?;
                if found == room {
                    let bytes = [1, ((found + 1) * size_of::<Slot>()) as u32, (room * size_of::<Slot>()) as u32, 0];
                    return Err(Outcome::new(Code::BufferTooSmall, bytes));
                }
                let [artifact_bytes, artifact_checksum] = slot.artifact.map_or([0; 2], |artifact| [artifact.length, artifact.checksum]);
                let slot = Slot { sequence: slot.sequence, bytes: slot.bytes, artifact_bytes, artifact_checksum, whole: slot.whole };
                list.add(found).write(slot);
                found += 1;
            }
            count.set(found);
        }
        Ok(())
    })
}

/// Erases the newest complete checkpoint of the session's artifact, so that a restore finds the one before. Stores its number in
/// `sequence`, or 0 if there is none.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_slots_discard_newest(slots: *mut Slots, session: *mut Session, sequence: *mut u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut slots, session) = unsafe { (place::take(0, slots)?, session::take(1, session)?) };
        let sequence = out(&slots, &session, 2, sequence)?;
        // SAFETY: as above.
        unsafe { sequence.set(slots.discard_newest(&session.session)?.unwrap_or(0)) };
        Ok(())
    })
}

/// Checks the pointer to a result, which is in none of the structs, nor in the arena.
fn out<T>(slots: &Taken<Slots>, session: &Taken<Session>, argument: u32, pointer: *mut T) -> Checked<Out<T>> {
    let out = Out::new(argument, pointer, session.memory())?;
    out.region().apart(&slots.region(0))?;
    Ok(out)
}

impl Driver {
    /// Fails if a function is missing.
    fn new(flash: &Flash) -> Checked<Driver> {
        let Flash { context, read, write, erase, capacity, block } = *flash;
        let (read, write, erase) = (memory::callback(1, read)?, memory::callback(1, write)?, memory::callback(1, erase)?);
        Ok(Driver { context, read, write, erase, capacity, block, idle: false })
    }
}

/// Converts the answer of a function.
fn succeeded(answer: i32) -> Result<(), NorFlashErrorKind> {
    if answer == 0 { Ok(()) } else { Err(NorFlashErrorKind::Other) }
}

impl ErrorType for Driver {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for Driver {
    const READ_SIZE: usize = CHUNK;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        // SAFETY: the bytes exist, and can be written.
        succeeded(unsafe { (self.read)(self.context, offset, bytes.as_mut_ptr(), bytes.len()) })
    }

    fn capacity(&self) -> usize {
        self.capacity as usize
    }
}

/// The size of a block is a constant of the trait, but C states it at run time. The driver therefore claims small blocks, and erases a
/// block of the flash when the first of the small ones in it is erased. Core erases a slot from its begin on, and a slot begins with a
/// block.
impl NorFlash for Driver {
    const WRITE_SIZE: usize = CHUNK;
    const ERASE_SIZE: usize = CHUNK;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        let mut offset = from.checked_next_multiple_of(self.block).unwrap_or(to);
        self.idle = offset >= to;
        while offset < to {
            // SAFETY: the driver's promise.
            succeeded(unsafe { (self.erase)(self.context, offset) })?;
            offset = offset.saturating_add(self.block);
        }
        Ok(())
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        // SAFETY: the bytes exist.
        succeeded(unsafe { (self.write)(self.context, offset, bytes.as_ptr(), bytes.len()) })
    }
}
