//! Names and meanings of results.

use crate::driver::state::give;
use crate::driver::status::Status;
use std::ffi::c_char;

/// Returns the name of a result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(status: Status, name: *mut *const c_char) -> Status {
    match status.texts() {
        Some((text, _)) => give(name, text.as_ptr()).into(),
        None => give(name, std::ptr::null()).err().unwrap_or(Status::INVALID_VALUE),
    }
}

/// Returns the meaning of a result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(status: Status, meaning: *mut *const c_char) -> Status {
    match status.texts() {
        Some((_, text)) => give(meaning, text.as_ptr()).into(),
        None => give(meaning, std::ptr::null()).err().unwrap_or(Status::INVALID_VALUE),
    }
}
