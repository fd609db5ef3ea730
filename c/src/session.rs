//! Sessions: programs with their memory.

use crate::memory::{self, Checked, Out, Region};
use crate::outcome::{Code, Fault, Outcome, Result};
use crate::place::{self, Taken, place};
use crate::program::{Key, Opened as OpenedProgram, Program};
use core::ffi::{c_char, c_void};
use core::fmt::{self, Write};
use gradlet_core::runtime::SignatureId;
use gradlet_core::runtime::program::ALIGN;
use gradlet_core::{Program as Loaded, Session as Running};

/// Size of a `gradlet_session`, in words of a pointer's size.
pub const GRADLET_SESSION_WORDS: usize = 80;

/// A session: a program with its memory, the arena. The struct stays where it is. While the session is used, C reads and writes the
/// arena only where a function has returned a pointer into it.
#[repr(C)]
pub struct Session {
    words: [usize; GRADLET_SESSION_WORDS],
}

place!(Session: Opened, b"sess");

/// A session, and what it was made of.
pub struct Opened {
    pub(crate) session: Running<'static, 'static>,
    program: *const Program,
    key: Key,
    /// The two parts of the arena, and the struct of the session.
    memory: [Region; 3],
}

/// The memory of a session, as arguments.
type Arena = (u32, *mut u8, usize);

/// Initialises a session of `program` in the arena of `bytes` bytes, which begins at a multiple of 16. Every variable gets its initial
/// value. gradlet_program_sizes and the header of `gradlet export --c` have the size.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_init(session: *mut Session, program: *const Program, arena: *mut u8, bytes: usize) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { open(session, program, [(2, arena, bytes), NOTHING], |program, [arena, _]| Running::new(program, arena)) })
}

/// Initialises a session in an arena that an earlier session of the same program and signatures has used, and keeps the values of the
/// variables. Fails with GRADLET_CODE_UNFINISHED if the arena holds no session, or one that was interrupted while it changed them:
/// gradlet_session_init then begins anew.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_resume(session: *mut Session, program: *const Program, arena: *mut u8, bytes: usize) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { open(session, program, [(2, arena, bytes), NOTHING], |program, [arena, _]| Running::resume(program, arena)) })
}

/// Initialises a session like gradlet_session_init, with the arena in two parts. Models that run in turn can share `scratch`. Each has a
/// `kept` of its own, to which gradlet_session_resume_in returns at each switch. Inputs, outputs and a run in slices are lost when another
/// model uses `scratch`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_init_in(
    session: *mut Session,
    program: *const Program,
    scratch: *mut u8,
    scratch_bytes: usize,
    kept: *mut u8,
    kept_bytes: usize,
) -> Outcome {
    let parts = [(2, scratch, scratch_bytes), (4, kept, kept_bytes)];
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { open(session, program, parts, |program, [scratch, kept]| Running::new_in(program, scratch, kept)) })
}

/// Initialises a session like gradlet_session_resume, with the arena in two parts. `kept` is that of the earlier session; `scratch` can
/// hold anything.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_resume_in(
    session: *mut Session,
    program: *const Program,
    scratch: *mut u8,
    scratch_bytes: usize,
    kept: *mut u8,
    kept_bytes: usize,
) -> Outcome {
    let parts = [(2, scratch, scratch_bytes), (4, kept, kept_bytes)];
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { open(session, program, parts, |program, [scratch, kept]| Running::resume_in(program, scratch, kept)) })
}

const NOTHING: Arena = (2, core::ptr::null_mut(), 0);

/// Makes a session of checked arguments with `make`.
///
/// # Safety
///
/// The promises of the crate's page.
#[inline(always)]
unsafe fn open(
    place: *mut Session,
    program: *const Program,
    [first, second]: [Arena; 2],
    make: impl FnOnce(&'static Loaded<'static>, [&'static mut [u8]; 2]) -> gradlet_core::Result<Running<'static, 'static>>,
) -> Result {
    // SAFETY: the promises of the caller.
    unsafe {
        let own = place::begin(0, place)?;
        let opened: &OpenedProgram = place::look(1, program)?;
        let [region, other] = [Region::new(first.0, first.1, first.2, ALIGN)?, Region::new(second.0, second.1, second.2, ALIGN)?];
        let [artifact, kernels] = opened.memory;
        apart(&[own, Region::checked(1, program), artifact, kernels, region, other])?;
        place::clear(place);
        let session = make(&opened.program, [region.slice_mut(), other.slice_mut()])?;
        place::put(place, Opened { session, program, key: opened.key, memory: [region, other, own] });
    }
    Ok(())
}

/// Checks that no two regions overlap.
#[inline(never)]
fn apart(regions: &[Region]) -> Checked {
    let mut rest = regions;
    while let [region, others @ ..] = rest {
        others.iter().try_for_each(|other| region.apart(other))?;
        rest = others;
    }
    Ok(())
}

/// Takes the session at `place`, for one call.
///
/// # Safety
///
/// If `place` is not null, it points to a `Session` that no other thread uses.
#[inline(never)]
pub(crate) unsafe fn take(argument: u32, place: *mut Session) -> Checked<Taken<Session>> {
    // SAFETY: the caller's promise, and that of the call that has initialised the session.
    unsafe {
        let taken = place::take(argument, place)?;
        taken.whole(argument)?;
        Ok(taken)
    }
}

impl Opened {
    /// Fails if the struct of the session's program holds another program, or none.
    ///
    /// # Safety
    ///
    /// The memory of that struct still exists.
    unsafe fn whole(&self, argument: u32) -> Checked {
        // SAFETY: the promises of the caller.
        match unsafe { place::look(argument, self.program) } {
            Ok(program) if program.key == self.key => Ok(()),
            _ => Err(Fault::new(Code::NotInitialized, argument, 0)),
        }
    }

    /// Returns the loaded signature with this index.
    pub(crate) fn signature(&self, index: u32) -> gradlet_core::Result<SignatureId> {
        self.session.program().signature_at(index)
    }

    /// Returns the pointer of C to an address in the first part of the arena, where inputs are.
    pub(crate) fn input(&self, address: *const u8) -> *mut u8 {
        self.memory[0].pointer_to(address)
    }

    /// Returns memory that no argument may overlap: the parts of the arena, and the struct of the session.
    pub(crate) fn memory(&self) -> &[Region] {
        &self.memory
    }
}

/// Runs a signature on the inputs that were set. The index of the signature is in the header of `gradlet export --c`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_run(session: *mut Session, signature: u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let mut session = unsafe { take(0, session)? };
        let signature = session.signature(signature)?;
        Ok(session.session.run(signature)?)
    })
}

/// Receives `count` bytes of text, which is not ended by a zero.
pub type PrintFn = Option<unsafe extern "C" fn(context: *mut c_void, text: *const c_char, count: usize)>;

/// Runs a signature like gradlet_session_run, and passes what the program prints and summarises to `print`, in pieces. `print` receives
/// `context`. This links code that formats numbers.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_run_printing(
    session: *mut Session,
    signature: u32,
    print: PrintFn,
    context: *mut c_void,
) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let mut session = unsafe { take(0, session)? };
        let mut console = Console { print: memory::callback(2, print)?, context };
        let signature = session.signature(signature)?;
        // The console takes everything.
        Ok(session.session.run_printing(signature, &mut |said| _ = write!(console, "{said}"))?)
    })
}

/// A callback that receives text.
struct Console {
    print: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    context: *mut c_void,
}

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the text exists.
        unsafe { (self.print)(self.context, text.as_ptr().cast(), text.len()) };
        Ok(())
    }
}

/// Begins a run of a signature. gradlet_session_advance does the work, in slices. Until it is done, C sets no input and no variable,
/// although gradlet does not refuse it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_begin(session: *mut Session, signature: u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let mut session = unsafe { take(0, session)? };
        let signature = session.signature(signature)?;
        Ok(session.session.begin(signature)?)
    })
}

/// Goes on with a run for about `budget` instructions of a Cortex-M4. Stores in `done` whether the run is done.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_advance(session: *mut Session, budget: u32, done: *mut bool) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let mut session = unsafe { take(0, session)? };
        let done = Out::new(2, done, session.memory())?;
        // SAFETY: as above.
        unsafe { done.set(session.session.advance(budget)?.is_ready()) };
        Ok(())
    })
}

/// Abandons the run in progress, if there is one.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_abort(session: *mut Session) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe { take(0, session)? }.session.abort();
        Ok(())
    })
}

/// Resets every variable to its initial value.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_reset(session: *mut Session) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe { take(0, session)? }.session.reset();
        Ok(())
    })
}
