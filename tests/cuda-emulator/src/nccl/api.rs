//! The exported functions. Those that begin with `emulator_` are for tests.

// NCCL's documentation states for each function what its caller guarantees.
#![allow(clippy::missing_safety_doc, non_snake_case)]

use super::reduction::{self, Kind, Operand, Reduction};
use super::{
    Call, Communicator, GROUP, INVALID_ARGUMENT, INVALID_USAGE, Library, NcclCounts, NcclResult, SUCCESS, UNHANDLED_CUDA_ERROR, library,
};
use crate::driver::{Emulator, Handle, Status, Stop, Work, emulator};
use std::ffi::{CStr, c_char};
use std::sync::Arc;

/// NCCL's version: 2.21.5.
const VERSION: i32 = 22105;
/// The reduction that adds.
const SUM: i32 = 0;

/// Runs a call that a test may have told to fail.
fn call(function: &str, body: impl FnOnce(&mut Library) -> Result<(), NcclResult>) -> NcclResult {
    let mut library = library();
    match library.failure(function) {
        Some(result) => result,
        None => body(&mut library).err().unwrap_or(SUCCESS),
    }
}

/// Keeps the text of an error for `emulator_report`, and returns the error.
fn refuse(text: &str) -> NcclResult {
    emulator().refuse(Stop::new(Status::INVALID_VALUE, text));
    INVALID_USAGE
}

/// Writes a result to where the caller wants it.
fn give<T>(place: *mut T, value: T) -> Result<(), NcclResult> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller gives a place for a value of this type, or a null pointer.
    unsafe { place.write(value) };
    Ok(())
}

/// Returns the version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut i32) -> NcclResult {
    call("ncclGetVersion", |_| give(version, VERSION))
}

/// Returns the meaning of a result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetErrorString(result: NcclResult) -> *const c_char {
    let text = match result {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// Creates a communicator for each device of a list. Each device may occur once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitAll(communicators: *mut Handle, count: i32, devices: *const i32) -> NcclResult {
    call("ncclCommInitAll", |library| {
        let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0 && !devices.is_null()) else {
            return Err(INVALID_ARGUMENT);
        };
        // SAFETY: the caller gives as many devices as it says.
        let devices = unsafe { std::slice::from_raw_parts(devices, count) };
        let mut emulator = emulator();
        let exists = |device: i32| usize::try_from(device).is_ok_and(|device| device < emulator.devices.len());
        if !devices.iter().all(|device| exists(*device)) {
            return Err(INVALID_ARGUMENT);
        }
        if (1..count).any(|rank| devices[..rank].contains(&devices[rank])) {
            drop(emulator);
            return Err(refuse("DuplicateGpu: two ranks of a communicator are on the same device"));
        }
        library.last_clique += 1;
        library.counts.inits += 1;
        for (rank, device) in devices.iter().enumerate() {
            let handle = emulator.handle();
            let own = Communicator { clique: library.last_clique, rank, ranks: count, device: *device as usize };
            library.communicators.insert(handle, own);
            give(communicators.wrapping_add(rank), handle)?;
        }
        Ok(())
    })
}

/// Ends a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(communicator: Handle) -> NcclResult {
    call("ncclCommDestroy", |library| {
        library.counts.destroyed += 1;
        library.communicators.remove(&communicator).map(drop).ok_or(INVALID_ARGUMENT)
    })
}

/// Ends a communicator, and its work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(communicator: Handle) -> NcclResult {
    call("ncclCommAbort", |library| {
        library.counts.aborted += 1;
        library.communicators.remove(&communicator).map(drop).ok_or(INVALID_ARGUMENT)
    })
}

/// Returns the result of work that has failed after its call. A test's result goes there too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(communicator: Handle, result: *mut NcclResult) -> NcclResult {
    let mut library = library();
    if !library.communicators.contains_key(&communicator) {
        return INVALID_ARGUMENT;
    }
    let failed = library.failure("ncclCommGetAsyncError").unwrap_or(SUCCESS);
    give(result, failed).err().unwrap_or(SUCCESS)
}

/// Starts a group of calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupStart() -> NcclResult {
    call("ncclGroupStart", |_| match GROUP.replace(Some(Vec::new())) {
        None => Ok(()),
        Some(_) => Err(refuse("NestedGroup: the thread has started a group in a group")),
    })
}

/// Ends a group of calls, and puts their work on the streams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupEnd() -> NcclResult {
    call("ncclGroupEnd", |library| {
        let calls = GROUP.take().ok_or(INVALID_USAGE)?;
        library.counts.groups += 1;
        let Some(matched) = Library::matched(calls) else {
            return Err(refuse("IncompleteGroup: a rank has not made the calls of the others, which would wait for ever"));
        };
        for calls in matched {
            match calls[0].kind {
                Kind::AllReduce => library.counts.all_reduces += 1,
                Kind::Broadcast(_) => library.counts.broadcasts += 1,
            }
            submit(&mut emulator(), &calls).map_err(|_| UNHANDLED_CUDA_ERROR)?;
        }
        Ok(())
    })
}

/// Adds the elements of all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    from: u64,
    to: u64,
    elements: usize,
    dtype: i32,
    operation: i32,
    communicator: Handle,
    stream: Handle,
) -> NcclResult {
    call("ncclAllReduce", |library| {
        if operation != SUM {
            return Err(INVALID_ARGUMENT);
        }
        add(library, Kind::AllReduce, Operand { device: 0, from, to, elements, dtype }, communicator, stream)
    })
}

/// Copies the elements of the rank `root` to all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBroadcast(
    from: u64,
    to: u64,
    elements: usize,
    dtype: i32,
    root: i32,
    communicator: Handle,
    stream: Handle,
) -> NcclResult {
    call("ncclBroadcast", |library| {
        let root = usize::try_from(root).map_err(|_| INVALID_ARGUMENT)?;
        add(library, Kind::Broadcast(root), Operand { device: 0, from, to, elements, dtype }, communicator, stream)
    })
}

/// Adds a call to the group of this thread.
fn add(library: &Library, kind: Kind, operand: Operand, communicator: Handle, stream: Handle) -> Result<(), NcclResult> {
    let communicator = *library.communicators.get(&communicator).ok_or(INVALID_ARGUMENT)?;
    if reduction::element(operand.dtype).is_none() || matches!(kind, Kind::Broadcast(root) if root >= communicator.ranks) {
        return Err(INVALID_ARGUMENT);
    }
    let operand = Operand { device: communicator.device, ..operand };
    GROUP.with_borrow_mut(|group| match group {
        Some(calls) => {
            calls.push(Call { communicator, stream, kind, operand });
            Ok(())
        }
        None => Err(refuse("NoGroup: a thread that controls several ranks calls NCCL outside of a group")),
    })
}

/// Puts an operation on the stream of its first rank. It waits for the streams of the other ranks, and they wait for it.
fn submit(emulator: &mut Emulator, calls: &[Call]) -> Result<(), Status> {
    let streams = calls.iter().map(|call| emulator.stream(call.communicator.device, call.stream));
    let streams = streams.collect::<Result<Vec<Handle>, Status>>()?;
    for &other in &streams[1..] {
        let point = emulator.end_of(other).ok_or(Status::INVALID_HANDLE)?;
        emulator.submit(streams[0], Work::Wait(point))?;
    }
    let operands = calls.iter().map(|call| call.operand).collect();
    let point = emulator.submit(streams[0], Work::Collective(Arc::new(Reduction { kind: calls[0].kind, operands })))?;
    streams[1..].iter().try_for_each(|&other| emulator.submit(other, Work::Wait(point)).map(drop))
}

/// Writes the counts of NCCL's calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_nccl_counts(counts: *mut NcclCounts) -> NcclResult {
    give(counts, library().counts).err().unwrap_or(SUCCESS)
}

/// Lets the next call of a function fail: `FUNCTION RESULT`, such as `ncclAllReduce 1`. The result of `ncclCommGetAsyncError` is the error
/// that it reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulator_nccl_fail(words: *const c_char) -> NcclResult {
    if words.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller gives a text with a zero at its end, or null.
    let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
    let failure = words.split_once(' ').and_then(|(function, result)| Some((function.to_string(), result.parse().ok()?)));
    library().failure = failure;
    if library().failure.is_some() { SUCCESS } else { INVALID_ARGUMENT }
}
