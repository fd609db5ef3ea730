//! Telemetry through a callback.

use crate::checkpoint::{Line, WriteCall, WriteFn};
use crate::memory::{self, Out, Region};
use crate::outcome::Outcome;
use crate::place::{self, Taken, place};
use crate::program::Program;
use crate::session::{self, Session};
use core::ffi::{c_char, c_void};
use core::ptr::NonNull;
use embedded_io::{ErrorKind, WriteReady};
use gradlet_core::Error;
use gradlet_core::runtime::{Telemetry as Sender, TensorId};

/// Size of a `gradlet_telemetry`, in words of a pointer's size.
pub const GRADLET_TELEMETRY_WORDS: usize = 20;

/// A queue of telemetry frames, which `gradlet monitor` shows in TensorBoard. The struct stays where it is.
#[repr(C)]
pub struct Telemetry {
    words: [usize; GRADLET_TELEMETRY_WORDS],
}

place!(Telemetry: Opened, b"tele");

/// A queue of frames, and its buffer.
pub struct Opened {
    sender: Sender<'static, Line<WriteCall>>,
    buffer: Region,
}

impl Taken<Telemetry> {
    /// Returns memory that no argument may overlap: the struct, and the buffer.
    fn memory(&self) -> [Region; 2] {
        [self.region(0), self.buffer]
    }
}

/// Initialises a queue of frames in `buffer`, of `bytes` bytes. It should hold all frames that are sent between two polls. `write` takes as
/// many of its bytes as it can without waiting, also none, and returns how many, or a negative number if it failed. It receives `context`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_telemetry_init(
    telemetry: *mut Telemetry,
    write: WriteFn,
    context: *mut c_void,
    buffer: *mut u8,
    bytes: usize,
) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe {
            let own = place::begin(0, telemetry)?;
            let call = memory::callback(1, write)?;
            let buffer = Region::new(3, buffer, bytes, 1)?;
            own.apart(&buffer)?;
            place::clear(telemetry);
            let sender = Sender::new(Line { call, context }, buffer.slice_mut());
            place::put(telemetry, Opened { sender, buffer: buffer.of_argument(0) });
        }
        Ok(())
    })
}

/// Sends a frame that introduces the sender. It should be the first one, and be repeated now and then. `clock` names a unit of time, of
/// which `hz` make a second. `program` may be null; otherwise, the reader shows the names of its ops.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_telemetry_hello(
    telemetry: *mut Telemetry,
    sender: *const c_char,
    clock: *const c_char,
    hz: u32,
    program: *const Program,
) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe {
            let program = NonNull::new(program.cast_mut()).map(|program| place::look(4, program.as_ptr())).transpose()?;
            let mut telemetry = place::take(0, telemetry)?;
            let others = telemetry.memory();
            let (sender, clock) = (memory::text(1, sender, &others)?, memory::text(2, clock, &others)?);
            telemetry.sender.hello(sender, clock, hz, program.map(|program| program.program.identity()));
        }
        Ok(())
    })
}

/// Sends a number for a step, such as a loss.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_telemetry_scalar(telemetry: *mut Telemetry, tag: *const c_char, step: u32, value: f32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let mut telemetry = unsafe { place::take(0, telemetry)? };
        // SAFETY: as above.
        let tag = unsafe { memory::text(1, tag, &telemetry.memory())? };
        telemetry.sender.scalar(tag, step, value);
        Ok(())
    })
}

/// Sends a text for a step.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_telemetry_text(telemetry: *mut Telemetry, tag: *const c_char, step: u32, text: *const c_char) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let mut telemetry = unsafe { place::take(0, telemetry)? };
        let others = telemetry.memory();
        // SAFETY: as above.
        let (tag, text) = unsafe { (memory::text(1, tag, &others)?, memory::text(3, text, &others)?) };
        telemetry.sender.text(tag, step, text);
        Ok(())
    })
}

/// Sends the progress of an epoch: `step` of `of` steps are done.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_telemetry_progress(telemetry: *mut Telemetry, step: u32, of: u32, epoch: u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe { place::take(0, telemetry)? }.sender.progress(step, of, epoch);
        Ok(())
    })
}

/// Sends the statistics of variable `index` of a session: smallest and largest element, mean, variance.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_telemetry_variable(
    telemetry: *mut Telemetry,
    tag: *const c_char,
    step: u32,
    session: *mut Session,
    index: u32,
) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut telemetry, session) = unsafe { (place::take(0, telemetry)?, session::take(3, session)?) };
        // SAFETY: as above.
        let tag = unsafe { memory::text(1, tag, &telemetry.memory())? };
        telemetry.sender.statistics(tag, step, &session.session.view(TensorId::Variable(index as usize))?);
        Ok(())
    })
}

/// Runs a signature like gradlet_session_run, and sends what the program prints and summarises, with the tag `print` or the tags of the
/// summaries. `step` is the step of those that have none. This links code that formats numbers.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_telemetry_run(telemetry: *mut Telemetry, session: *mut Session, signature: u32, step: u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (mut telemetry, mut session) = unsafe { (place::take(0, telemetry)?, session::take(1, session)?) };
        let signature = session.signature(signature)?;
        Ok(session.session.run_printing(signature, &mut |said| telemetry.sender.said(&said, step))?)
    })
}

/// Passes waiting bytes to the callback, until it takes none.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_telemetry_poll(telemetry: *mut Telemetry) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let polled = unsafe { place::take(0, telemetry)? }.sender.poll();
        Ok(polled.map_err(|kind| Error::Io { kind })?)
    })
}

/// Stores whether the callback has taken all bytes in `empty`, and the number of frames that had no room in `dropped`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_telemetry_state(telemetry: *mut Telemetry, empty: *mut bool, dropped: *mut u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let mut telemetry = unsafe { place::take(0, telemetry)? };
        let [own, buffer] = telemetry.memory();
        let empty = Out::new(1, empty, &[own, buffer])?;
        let dropped = Out::new(2, dropped, &[own, buffer, empty.region()])?;
        // SAFETY: as above.
        unsafe {
            empty.set(telemetry.sender.is_empty());
            dropped.set(telemetry.sender.dropped());
        }
        Ok(())
    })
}

impl WriteReady for Line<WriteCall> {
    /// The callback itself tells that it takes no more.
    fn write_ready(&mut self) -> Result<bool, ErrorKind> {
        Ok(true)
    }
}
