//! Checkpoints through callbacks.

use crate::memory::{self, Checked, Out};
use crate::outcome::{Code, Fault, Outcome, Result};
use crate::place;
use crate::program::Program;
use crate::session::{self, Session};
use core::ffi::c_void;
use embedded_io::{ErrorKind, ErrorType, Read, Write};
use gradlet_core::runtime::checkpoint::Contents as Which;

/// The set of variables that a checkpoint contains.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum Contents {
    /// All variables.
    Full = 0,
    /// The variables whose values differ from the initial ones. Such a checkpoint is smaller.
    Changed = 1,
}

/// Takes up to `count` bytes. Returns how many it has taken, or a negative number if it failed. For a checkpoint it takes at least one; for
/// telemetry it does not wait, and may take none.
pub type WriteFn = Option<unsafe extern "C" fn(context: *mut c_void, bytes: *const u8, count: usize) -> i32>;

/// Stores up to `count` bytes at `bytes`. Returns how many it has stored, 0 at the end, or a negative number if it failed.
pub type ReadFn = Option<unsafe extern "C" fn(context: *mut c_void, bytes: *mut u8, count: usize) -> i32>;

/// Returns the contents with this number.
pub(crate) fn contents(argument: u32, number: u32) -> Checked<Which> {
    match number {
        0 => Ok(Which::Full),
        1 => Ok(Which::Changed),
        _ => Err(Fault::new(Code::BadNumber, argument, 0)),
    }
}

/// Saves the variables of a session through `write`, which receives `context`. `contents` is one of `enum gradlet_contents`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_save(session: *mut Session, contents: u32, write: WriteFn, context: *mut c_void) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let session = unsafe { session::take(0, session)? };
        let contents = self::contents(1, contents)?;
        let write = memory::callback(2, write)?;
        Ok(session.session.save(&mut Line { call: write, context }, contents)?)
    })
}

/// Stores the number of bytes that gradlet_session_save writes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_checkpoint_bytes(session: *mut Session, contents: u32, bytes: *mut u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let session = unsafe { session::take(0, session)? };
        let bytes = Out::new(2, bytes, session.memory())?;
        // SAFETY: as above.
        unsafe { bytes.set(session.session.checkpoint_len(self::contents(1, contents)?)) };
        Ok(())
    })
}

/// Sets the variables of a session to those of a checkpoint, which it reads through `read`. A checkpoint of another artifact changes
/// nothing. Any error after the header, also one of `read`, resets all variables to their initial values. If the checkpoint can be read
/// twice, gradlet_session_verify finds errors first.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_restore(session: *mut Session, read: ReadFn, context: *mut c_void) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let mut session = unsafe { session::take(0, session)? };
        let read = memory::callback(1, read)?;
        Ok(session.session.restore(&mut Line { call: read, context })?)
    })
}

/// Reads a checkpoint through `read` and fails like gradlet_session_restore, but changes nothing.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_verify(session: *mut Session, read: ReadFn, context: *mut c_void) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let session = unsafe { session::take(0, session)? };
        let read = memory::callback(1, read)?;
        Ok(session.session.verify(&mut Line { call: read, context })?)
    })
}

/// Sets the variables of a session to those of a checkpoint of another artifact, `old`, as far as names and types are the same. The others
/// get their initial values. A model that was replaced thus keeps what it has learned. `old` needs no kernels and no signatures. `read`
/// must not load `old` anew.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_restore_other(
    session: *mut Session,
    old: *const Program,
    read: ReadFn,
    context: *mut c_void,
) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut session, old) = unsafe { (session::take(0, session)?, place::look(1, old)?) };
        let read = memory::callback(2, read)?;
        Ok(session.session.restore_other(&old.program, &mut Line { call: read, context })?)
    })
}

/// A [`WriteFn`] that is not null.
pub(crate) type WriteCall = unsafe extern "C" fn(*mut c_void, *const u8, usize) -> i32;
/// A [`ReadFn`] that is not null.
type ReadCall = unsafe extern "C" fn(*mut c_void, *mut u8, usize) -> i32;

/// A callback that reads or writes bytes.
pub struct Line<F> {
    pub(crate) call: F,
    pub(crate) context: *mut c_void,
}

impl<F> ErrorType for Line<F> {
    type Error = ErrorKind;
}

/// Returns the number of bytes that a callback has moved, at most `count`.
fn moved(answer: i32, count: usize) -> Result<usize, ErrorKind> {
    usize::try_from(answer).ok().filter(|&moved| moved <= count).ok_or(ErrorKind::Other)
}

impl Write for Line<WriteCall> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        // SAFETY: the bytes exist.
        moved(unsafe { (self.call)(self.context, bytes.as_ptr(), bytes.len()) }, bytes.len())
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

impl Read for Line<ReadCall> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ErrorKind> {
        // SAFETY: the bytes exist, and can be written.
        moved(unsafe { (self.call)(self.context, bytes.as_mut_ptr(), bytes.len()) }, bytes.len())
    }
}
