//! Copies and fills.

use crate::driver::block::Place;
use crate::driver::memory::FIRST;
use crate::driver::state::{Emulator, Handle, call_on_device};
use crate::driver::status::{Outcome, Status, Stop};
use crate::driver::work::{Copy, Fill, Source, Target, Work};

/// Copies from the host to the device. Memory that is not page-locked is copied before the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: Handle, bytes: usize, stream: Handle) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        emulator.check(device, to, bytes)?;
        let from = match emulator.is_pinned(device, from, bytes)? {
            true => Source::Pinned(from as u64),
            // SAFETY: the caller gives a range of its memory.
            false => Source::Staged(unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.to_vec()),
        };
        emulator.counts.uploads += 1;
        emulator.counts.upload_bytes += bytes as u64;
        emulator.submit(stream, Work::Copy(Copy { from, to: Target::Device(to), bytes })).map(drop)
    })
}

/// Copies from the device to the host. The call waits for the copy if the memory is not page-locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: Handle, from: u64, bytes: usize, stream: Handle) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        emulator.check(device, from, bytes)?;
        let is_pinned = emulator.is_pinned(device, to, bytes)?;
        emulator.counts.downloads += 1;
        emulator.counts.download_bytes += bytes as u64;
        let to = if is_pinned { Target::Pinned(to as u64) } else { Target::Pageable(to as u64) };
        let point = emulator.submit(stream, Work::Copy(Copy { from: Source::Device(from), to, bytes }))?;
        if is_pinned { Ok(()) } else { emulator.finish(point) }
    })
}

/// Copies within the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let copy = emulator.device_copy(device, from, to, bytes)?;
        emulator.counts.device_copies += 1;
        emulator.submit(stream, Work::Copy(copy)).map(drop)
    })
}

/// Fills memory with a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) -> Status {
    fill(to, &[value], count, stream)
}

/// Fills memory with a number of 16 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: Handle) -> Status {
    fill(to, &value.to_le_bytes(), count, stream)
}

/// Fills memory with a number of 32 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle) -> Status {
    fill(to, &value.to_le_bytes(), count, stream)
}

fn fill(to: u64, value: &[u8], count: usize, stream: Handle) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        if count == 0 {
            return Ok(());
        }
        let fill = emulator.fill(device, to, value, count)?;
        emulator.counts.fills += 1;
        emulator.submit(stream, Work::Fill(fill)).map(drop)
    })
}

impl Emulator {
    /// Checks that a range of device memory is in one allocation.
    pub(crate) fn check(&mut self, device: usize, address: u64, bytes: usize) -> Outcome {
        self.memory.check(device, address, bytes).map_err(|stop| self.refuse(stop))
    }

    /// Creates a copy within a device.
    pub(crate) fn device_copy(&mut self, device: usize, from: u64, to: u64, bytes: usize) -> Outcome<Copy> {
        self.check(device, from, bytes)?;
        self.check(device, to, bytes)?;
        if from.abs_diff(to) < bytes as u64 {
            let text = format!("InvalidValue: copy of {bytes} bytes from {from:#x} to {to:#x}: the ranges overlap");
            return Err(self.refuse(Stop::new(Status::INVALID_VALUE, text)));
        }
        Ok(Copy { from: Source::Device(from), to: Target::Device(to), bytes })
    }

    /// Creates a fill.
    pub(crate) fn fill(&mut self, device: usize, to: u64, value: &[u8], count: usize) -> Outcome<Fill> {
        let fill = Fill { to, value: value.to_vec(), count };
        self.check(device, to, fill.bytes())?;
        if to.is_multiple_of(value.len() as u64) { Ok(fill) } else { Err(Status::INVALID_VALUE) }
    }

    /// True if a range of the host's memory is page-locked. Fails if it is only in part, or if it is no memory of the host.
    pub(crate) fn is_pinned(&mut self, device: usize, pointer: Handle, bytes: usize) -> Outcome<bool> {
        let refused = |what: &str| {
            let text = format!("InvalidValue: copy of {bytes} bytes at {pointer:#x} of the host: {what}");
            Stop::new(Status::INVALID_VALUE, text)
        };
        let stop = match self.memory.find_host(pointer as u64) {
            None if pointer < 4096 => refused("a null pointer"),
            None if pointer as u64 >= FIRST => refused("memory of a device"),
            None => return Ok(false),
            Some(block) => match (block.range(pointer as u64, bytes), block.place) {
                (None, _) => refused("past the end of the allocation"),
                (Some(_), Place::Host { portable: false, .. }) if block.device != device => refused("memory of another context"),
                (Some(_), _) => return Ok(true),
            },
        };
        Err(self.refuse(stop))
    }
}
