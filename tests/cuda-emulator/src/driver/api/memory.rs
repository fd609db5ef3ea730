//! Allocations.

use crate::driver::block::{Block, Place};
use crate::driver::state::{Emulator, Handle, call_on_device, give};
use crate::driver::status::{Outcome, Status, Stop};

/// Returns the numbers of free bytes and of all bytes of the current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    call_on_device(|emulator, device| {
        let (free_bytes, all_bytes) = emulator.memory.info(device);
        give(free, free_bytes as usize)?;
        give(total, all_bytes as usize)
    })
}

/// Allocates memory of the current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> Status {
    call_on_device(|emulator, device| {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        if emulator.triggers.refuses_allocation() {
            return Err(Status::OUT_OF_MEMORY);
        }
        emulator.counts.allocations += 1;
        give(address, emulator.memory.allocate(device, bytes, Place::Device)?)
    })
}

/// Frees memory of the current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> Status {
    call_on_device(|emulator, device| {
        emulator.free(address, |block| block.device == device && matches!(block.place, Place::Device | Place::External))
    })
}

/// Allows every context to use page-locked memory.
const PORTABLE: u32 = 1;
/// Allows kernels to use page-locked memory.
const MAPPED: u32 = 2;
/// Makes the host's writes faster. It changes nothing here.
const WRITE_COMBINED: u32 = 4;

/// Allocates page-locked memory of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(pointer: *mut Handle, bytes: usize, flags: u32) -> Status {
    call_on_device(|emulator, device| {
        if bytes == 0 || flags & !(PORTABLE | MAPPED | WRITE_COMBINED) != 0 {
            return Err(Status::INVALID_VALUE);
        }
        if emulator.triggers.refuses_allocation() {
            return Err(Status::OUT_OF_MEMORY);
        }
        emulator.counts.allocations += 1;
        let place = Place::Host { portable: flags & PORTABLE != 0, mapped: flags & MAPPED != 0, registered: false };
        give(pointer, emulator.memory.allocate(device, bytes, place)? as Handle)
    })
}

/// Frees page-locked memory of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(pointer: Handle) -> Status {
    call_on_device(|emulator, _| emulator.free(pointer as u64, |block| matches!(block.place, Place::Host { registered: false, .. })))
}

/// Returns the address that kernels use for page-locked memory. It is the pointer itself, if the memory was mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: Handle, flags: u32) -> Status {
    call_on_device(|emulator, device| {
        let block = emulator.memory.find_host(pointer as u64).ok_or(Status::INVALID_VALUE)?;
        let is_usable = matches!(block.place, Place::Host { mapped: true, portable, .. } if portable || block.device == device);
        if is_usable && flags == 0 { give(address, pointer as u64) } else { Err(Status::INVALID_VALUE) }
    })
}

impl Emulator {
    /// Frees an allocation in a place that is right. Work that still uses it will be a fault.
    pub(crate) fn free(&mut self, address: u64, is_right: impl Fn(&Block) -> bool) -> Outcome {
        let marks = self.memory.find(address).and_then(|block| block.marks);
        let freed = self.memory.free(address, is_right);
        if freed.is_err() {
            let text = format!("InvalidValue: {address:#x} is not the beginning of an allocation that can be freed");
            return Err(self.refuse(Stop::new(Status::INVALID_VALUE, text)));
        }
        marks.into_iter().for_each(|marks| self.end_stream(marks));
        self.counts.frees += 1;
        Ok(())
    }
}
