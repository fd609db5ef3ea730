//! The texts of errors. Core's errors have those of their `Display`, so a firmware that calls nothing here carries no text.

use crate::memory::Region;
use crate::outcome::{Code, Outcome, core_error};
use core::ffi::c_char;
use core::fmt::{self, Write};

/// Most bytes that are used of a buffer. Every text is shorter.
const ROOM: usize = 1024;

/// Writes the text of an outcome to `text`, of `bytes` bytes, and ends it with a zero. A text that is too long is cut. Returns the length
/// of the whole text, without the zero. `text` may be null if `bytes` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_text(result: Outcome, text: *mut c_char, bytes: usize) -> usize {
    let buffer: &mut [u8] = match Region::new(1, text.cast(), bytes.min(ROOM), 1) {
        // SAFETY: the promises of the caller.
        Ok(region) => unsafe { region.slice_mut() },
        Err(_) => &mut [],
    };
    let mut writer = Buffer { buffer, length: 0 };
    // The writer takes everything.
    let _ = match core_error(&result) {
        Some(error) => write!(writer, "{error}"),
        None => own(&mut writer, &result),
    };
    writer.end()
}

/// Writes the text of an outcome that is no error of core.
fn own(writer: &mut Buffer<'_>, result: &Outcome) -> fmt::Result {
    const NULL: u32 = Code::NullPointer as u32;
    const MISALIGNED: u32 = Code::MisalignedPointer as u32;
    const OVERLAP: u32 = Code::Overlap as u32;
    const NOT_INITIALIZED: u32 = Code::NotInitialized as u32;
    const IN_USE: u32 = Code::InUse as u32;
    const TEXT: u32 = Code::BadText as u32;
    const NUMBER: u32 = Code::BadNumber as u32;
    const SMALL: u32 = Code::BufferTooSmall as u32;
    let [argument, second, third, _] = result.numbers;
    match result.code {
        0 => writer.write_str("success"),
        NULL => write!(writer, "argument {argument} is a null pointer"),
        MISALIGNED => write!(writer, "argument {argument} must begin at a multiple of {second}"),
        OVERLAP => write!(writer, "the memory of argument {argument} overlaps that of argument {second}, or ends past the last address"),
        NOT_INITIALIZED => write!(
            writer,
            "argument {argument} is not initialised, was copied, or depends on a struct that has changed: initialise it where it stays"
        ),
        IN_USE => write!(writer, "argument {argument} is in use by a call that has not returned: callbacks and interrupts must not use it"),
        TEXT => write!(writer, "argument {argument} must be UTF-8 of at most 255 bytes"),
        NUMBER => write!(writer, "argument {argument} is a number outside its range"),
        SMALL => write!(writer, "argument {argument} needs {second} bytes, but has {third}"),
        code => write!(writer, "unknown code {code}"),
    }
}

/// A text under construction in the caller's bytes.
struct Buffer<'a> {
    buffer: &'a mut [u8],
    /// Length of the whole text, which may not fit.
    length: usize,
}

impl Buffer<'_> {
    /// Ends the text with a zero, and returns its length.
    fn end(self) -> usize {
        let last = self.length.min(self.buffer.len().saturating_sub(1));
        if let Some(byte) = self.buffer.get_mut(last) {
            *byte = 0;
        }
        self.length
    }
}

impl Write for Buffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = self.buffer.get_mut(self.length..).unwrap_or_default();
        free.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        self.length += text.len();
        Ok(())
    }
}
