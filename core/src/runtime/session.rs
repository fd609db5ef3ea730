//! A session: a program with its memory, and whether its variables hold a whole step.

use crate::base::error::{Error, Result};
use crate::runtime::arena::{Memory, Tables, VARIABLES};
use crate::runtime::program::{ALIGN, BlockRecord, MAX_DEPTH, NONE, Program, align};
use core::sync::atomic::{Ordering, compiler_fence};
use heapless::Vec;

/// State of a session whose variables hold a whole step, or the values of a restore or a reset.
pub(super) const FINISHED: u32 = u32::from_le_bytes(*b"DONE");
/// State of a session whose variables a run, a restore or a reset is changing. Any other number means the same.
pub(super) const UNFINISHED: u32 = u32::from_le_bytes(*b"OPEN");
/// State of a session that a run is changing, and whose second copy holds the values from before the run.
pub(super) const COPIED: u32 = u32::from_le_bytes(*b"COPY");

/// A program with its memory. Variables keep their values between runs.
///
/// The arena holds `[scratch | variables | second copy | addresses of the variables | number of changes | state]`, in one part or in two
/// ([`Session::new_in`]). It contains nothing pointer-sized, so its size is the same on every target. A run may reuse the bytes of an
/// input, so the caller sets every input before each run. The bytes of an output stay valid until an input of any signature is set or the
/// next run starts.
///
/// # Whole steps
///
/// From the first write to a variable until the end of the run, the session is *unfinished*. It stays so if the run fails, or if the
/// device resets. An unfinished session neither runs nor saves, and [`Session::resume`] refuses it, each with [`Error::Unfinished`].
/// [`Session::restore`] and [`Session::reset`] end this state. If the artifact checks its steps
/// ([`Artifact::finite_steps`](crate::Artifact::finite_steps)), the new value of a variable must be finite. Otherwise the run fails with
/// [`Error::NotFinite`].
///
/// If the artifact keeps a second copy of the variables, a run that fails takes the old values back, and so does [`Session::resume`] after
/// a reset of the device during a run. The session is then finished.
#[doc(alias = "MicroInterpreter", alias = "Interpreter")]
pub struct Session<'p, 'm> {
    pub(super) places: Tables<'p, 'm>,
    pub(super) memory: Memory<'m>,
    /// The second copy of the variables, or nothing.
    pub(super) copy: &'m mut [u8],
    /// The state, at the end of the arena: [`FINISHED`], [`COPIED`] or [`UNFINISHED`].
    pub(super) state: &'m mut u32,
    /// The block that runs, at its next instruction.
    pub(super) frame: Frame,
    /// The blocks around it, outermost first.
    pub(super) around: Vec<Frame, MAX_DEPTH>,
    /// True if all new values of the next instruction's outputs so far are known to be finite.
    pub(super) finite: bool,
    /// Number of changes of the variables, next to the state in the arena. It begins with any number, and wraps.
    pub(super) changes: &'m mut u32,
}

impl<'p, 'm> Session<'p, 'm> {
    /// Creates a session in `arena` and sets every variable to its initial value.
    ///
    /// Fails with [`Error::Misaligned`] if `arena` does not begin at a multiple of 16. Fails with [`Error::ArenaTooSmall`], which states
    /// the number of bytes needed, if `arena` is too small.
    pub fn new(program: &'p Program<'p>, arena: &'m mut [u8]) -> Result<Session<'p, 'm>> {
        let (scratch, kept) = divide(program, arena)?;
        Session::new_in(program, scratch, kept)
    }

    /// Creates a session in an `arena` that an earlier session over the same program and signatures used, and keeps the values of the
    /// variables in it.
    ///
    /// Fails like [`Session::new`]. Fails with [`Error::Unfinished`] if the device was reset while a run, a restore or a reset changed the
    /// variables, or if the arena holds no session, as after a loss of power. [`Session::new`] then begins anew, and
    /// [`Slots::restore`](crate::runtime::Slots::restore) brings back the last checkpoint.
    pub fn resume(program: &'p Program<'p>, arena: &'m mut [u8]) -> Result<Session<'p, 'm>> {
        let (scratch, kept) = divide(program, arena)?;
        Session::resume_in(program, scratch, kept)
    }

    /// Creates a session like [`Session::new`], with the arena in two parts: `scratch`, at least [`Program::scratch_bytes`], and `kept`, at
    /// least [`Program::kept_bytes`]. Models that run in turn can share `scratch`. Each has a `kept` of its own, to which
    /// [`Session::resume_in`] returns.
    ///
    /// ```
    /// # use gradlet_core::{Program, Result, Session};
    /// fn in_turn(models: [&Program<'_>; 2], scratch: &mut [u8], kept: [&mut [u8]; 2]) -> Result<()> {
    ///     let [listen, look] = models;
    ///     let [first, second] = kept;
    ///     Session::new_in(listen, scratch, first)?;
    ///     Session::new_in(look, scratch, second)?;
    ///     loop {
    ///         let session = Session::resume_in(listen, scratch, first)?;
    ///         // Here the first model infers or learns. The second one follows, with its own variables.
    ///         let session = Session::resume_in(look, scratch, second)?;
    /// #       return Ok(());
    ///     }
    /// }
    /// ```
    ///
    /// Fails like [`Session::new`], for either part.
    pub fn new_in(program: &'p Program<'p>, scratch: &'m mut [u8], kept: &'m mut [u8]) -> Result<Session<'p, 'm>> {
        let mut session = Session::open(program, scratch, kept)?;
        session.reset();
        Ok(session)
    }

    /// Creates a session like [`Session::resume`], with the arena in two parts. `kept` is that of an earlier session over the same program
    /// and signatures; `scratch` can hold anything. Fails like [`Session::resume`], for either part.
    pub fn resume_in(program: &'p Program<'p>, scratch: &'m mut [u8], kept: &'m mut [u8]) -> Result<Session<'p, 'm>> {
        let mut session = Session::open(program, scratch, kept)?;
        session.abort();
        session.finished()?;
        Ok(session)
    }

    fn open(program: &'p Program<'p>, scratch: &'m mut [u8], kept: &'m mut [u8]) -> Result<Session<'p, 'm>> {
        let [scratch_bytes, variables, copy] = program.sizes();
        let scratch = take(scratch, scratch_bytes)?;
        let (variables, rest) = take(kept, program.kept_bytes())?.split_at_mut_checked(variables).unwrap_or_default();
        let (copy, words) = rest.split_at_mut_checked(copy).unwrap_or_default();
        let words: &mut [u32] = bytemuck::try_cast_slice_mut(words).unwrap_or_default();
        let (state, words) = words.split_last_mut().ok_or(Error::Internal)?;
        let (changes, offsets) = words.split_last_mut().ok_or(Error::Internal)?;
        let mut end = VARIABLES as u32;
        for (record, offset) in program.variables.iter().zip(offsets.iter_mut()) {
            *offset = NONE;
            if program.in_ram(record) {
                *offset = end;
                end += align(program.bytes_of(record) as usize) as u32;
            }
        }
        let (places, memory) = (Tables { program, offsets }, Memory { scratch, variables });
        Ok(Session { places, memory, copy, state, frame: Frame::IDLE, around: Vec::new(), finite: true, changes })
    }

    /// Fails with [`Error::Unfinished`] if the session is unfinished.
    pub(super) fn finished(&self) -> Result<()> {
        if *self.state == FINISHED { Ok(()) } else { Err(Error::Unfinished) }
    }

    /// Marks the session as finished, after the last change. A reset of the device must find all changes before the mark.
    pub(super) fn finish(&mut self) {
        compiler_fence(Ordering::SeqCst);
        *self.state = FINISHED;
    }

    /// Resets every variable to its initial value.
    pub fn reset(&mut self) {
        self.unfinish();
        (0..self.variable_count()).for_each(|index| self.set_initial(index));
        self.finish();
    }

    /// Marks the session as unfinished, before a restore or a reset. A run in progress is over.
    pub(super) fn unfinish(&mut self) {
        self.count_change();
        mark(self.state, UNFINISHED);
        self.frame = Frame::IDLE;
    }

    /// Counts a change of the variables, before it happens.
    pub(super) fn count_change(&mut self) {
        *self.changes = self.changes.wrapping_add(1);
    }

    /// Returns a number pair that is the same as long as no variable changes, also through sessions that resume in between. Sessions in
    /// different memory have different pairs.
    pub(super) fn version(&self) -> (usize, u32) {
        (core::ptr::from_ref(&*self.state).addr(), *self.changes)
    }

    /// Sets variable `index` to its initial value, if it is in RAM.
    pub(super) fn set_initial(&mut self, index: usize) {
        let (program, offset) = (self.places.program, self.places.offset(index as u32));
        let Some(record) = program.variables.get(index) else { return };
        let bytes = program.bytes_of(record);
        let initial = program.initial(record);
        let Some(value) = self.memory.get_mut(offset as usize, bytes as usize) else { return };
        match value.get_mut(..initial.len()) {
            Some(value) if !initial.is_empty() => value.copy_from_slice(initial),
            _ => value.fill(0),
        }
    }
}

/// Returns the first `needed` bytes of `memory`.
#[inline(never)]
fn take(memory: &mut [u8], needed: usize) -> Result<&mut [u8]> {
    if needed > 0 && !(memory.as_ptr() as usize).is_multiple_of(ALIGN) {
        return Err(Error::Misaligned);
    }
    let small = Error::ArenaTooSmall { needed: needed as u32, got: memory.len() as u32 };
    memory.get_mut(..needed).ok_or(small)
}

/// Divides an arena into scratch memory and the rest.
fn divide<'m>(program: &Program<'_>, arena: &'m mut [u8]) -> Result<(&'m mut [u8], &'m mut [u8])> {
    let arena = take(arena, program.arena_bytes())?;
    arena.split_at_mut_checked(program.scratch_bytes()).ok_or(Error::Internal)
}

/// Marks the session as changing, before a variable changes. A reset of the device must find the mark before the first change.
#[inline(always)]
pub(super) fn mark(state: &mut u32, changing: u32) {
    *state = changing;
    compiler_fence(Ordering::SeqCst);
}

/// The execution state of a block.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    /// Index of the next instruction.
    pub(super) next: u32,
    /// Index of the instruction after the block.
    pub(super) end: u32,
    /// [`Slice::first`] of the next instruction.
    pub(super) step: u32,
}

impl Frame {
    /// The frame of a session that runs nothing.
    pub(super) const IDLE: Frame = Frame { next: NONE, end: NONE, step: 0 };

    pub(super) fn new(block: &BlockRecord) -> Frame {
        Frame { next: block.first, end: block.first + block.instructions, step: 0 }
    }
}
