//! Events.

use crate::driver::queue::Point;
use crate::driver::state::{Emulator, Handle, call_on_device, give};
use crate::driver::status::{Outcome, Status};
use crate::driver::work::Work;

/// The event waits without using the processor. It changes nothing here.
const BLOCKING: u32 = 1;
/// The event keeps no time.
const NO_TIMING: u32 = 2;

/// An event.
pub(crate) struct Event {
    pub device: usize,
    has_timing: bool,
    /// Where it was recorded last.
    pub point: Option<Point>,
    /// When it last happened.
    pub time: u64,
}

/// Creates an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut Handle, flags: u32) -> Status {
    call_on_device(|emulator, device| {
        if flags & !(BLOCKING | NO_TIMING) != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let handle = emulator.handle();
        emulator.events.insert(handle, Event { device, has_timing: flags & NO_TIMING == 0, point: None, time: 0 });
        give(event, handle)
    })
}

/// Records an event in a stream of its device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        emulator.events.get(&event).filter(|event| event.device == device).ok_or(Status::INVALID_HANDLE)?;
        let point = emulator.submit(stream, Work::Stamp(event))?;
        if let Some(event) = emulator.events.get_mut(&event) {
            event.point = Some(point);
        }
        Ok(())
    })
}

/// Waits for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: Handle) -> Status {
    call_on_device(|emulator, _| {
        emulator.counts.synchronizations += 1;
        emulator.event(event)?.point.map_or(Ok(()), |point| emulator.finish(point))
    })
}

/// Returns whether an event has happened. Some work before it runs with each call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: Handle) -> Status {
    call_on_device(|emulator, _| emulator.event(event)?.point.map_or(Ok(()), |point| emulator.advance(point)))
}

/// Returns the time between two events in milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) -> Status {
    call_on_device(|emulator, _| {
        let (start, end) = (emulator.time(start)?, emulator.time(end)?);
        give(milliseconds, ((end as f64 - start as f64) / 1e6) as f32)
    })
}

/// Destroys an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: Handle) -> Status {
    call_on_device(|emulator, _| emulator.events.remove(&event).map(drop).ok_or(Status::INVALID_HANDLE))
}

impl Emulator {
    fn event(&self, handle: Handle) -> Outcome<&Event> {
        self.events.get(&handle).ok_or(Status::INVALID_HANDLE)
    }

    /// Returns when an event happened.
    fn time(&self, handle: Handle) -> Outcome<u64> {
        let event = self.event(handle)?;
        let point = event.point.filter(|_| event.has_timing).ok_or(Status::INVALID_HANDLE)?;
        if self.is_complete(point) { Ok(event.time) } else { Err(Status::NOT_READY) }
    }
}
