//! Streams.

use crate::driver::state::{Handle, call_on_device, give};
use crate::driver::status::Status;
use crate::driver::work::Work;

/// The stream does not wait for the default stream.
const NON_BLOCKING: u32 = 1;

/// Creates a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, flags: u32) -> Status {
    call_on_device(|emulator, device| {
        if flags & !NON_BLOCKING != 0 {
            return Err(Status::INVALID_VALUE);
        }
        give(stream, emulator.add_stream(device, flags & NON_BLOCKING == 0))
    })
}

/// Destroys a stream. Its work still runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Status {
    call_on_device(|emulator, device| {
        if emulator.stream(device, stream)? != stream {
            return Err(Status::INVALID_HANDLE);
        }
        emulator.end_stream(stream);
        Ok(())
    })
}

/// Waits for the work of a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: Handle) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        emulator.counts.synchronizations += 1;
        let marks = emulator.memory.host_marks();
        let mut points = [stream].into_iter().chain(marks).filter_map(|stream| emulator.end_of(stream)).collect::<Vec<_>>().into_iter();
        points.try_for_each(|point| emulator.finish(point))
    })
}

/// Returns whether the work of a stream has run. Some of it runs with each call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: Handle) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        emulator.end_of(stream).map_or(Ok(()), |point| emulator.advance(point))
    })
}

/// Makes a stream wait for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        let event = emulator.events.get(&event).ok_or(Status::INVALID_HANDLE)?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        event.point.map_or(Ok(()), |point| emulator.submit(stream, Work::Wait(point)).map(drop))
    })
}
