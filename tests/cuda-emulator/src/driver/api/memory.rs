//! Allocations.

use crate::driver::block::Place;
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
    call_on_device(|emulator, device| emulator.free(device, address, false))
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
        let place = Place::Host { portable: flags & PORTABLE != 0, mapped: flags & MAPPED != 0 };
        give(pointer, emulator.memory.allocate(device, bytes, place)? as Handle)
    })
}

/// Frees page-locked memory of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(pointer: Handle) -> Status {
    call_on_device(|emulator, device| emulator.free(device, pointer as u64, true))
}

/// Returns the address that kernels use for page-locked memory. It is the pointer itself, if the memory was mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: Handle, flags: u32) -> Status {
    call_on_device(|emulator, device| {
        let block = emulator.memory.find_host(pointer as u64).ok_or(Status::INVALID_VALUE)?;
        let is_usable = matches!(block.place, Place::Host { mapped: true, portable } if portable || block.device == device);
        if is_usable && flags == 0 { give(address, pointer as u64) } else { Err(Status::INVALID_VALUE) }
    })
}

impl Emulator {
    /// Frees an allocation of the device, or of the host. Work that still uses it will be a fault.
    fn free(&mut self, device: usize, address: u64, is_host: bool) -> Outcome {
        let marks = self.memory.find(address).and_then(|block| block.marks);
        let freed = self.memory.free(device, address, is_host);
        if freed.is_err() {
            let text = format!("InvalidValue: {address:#x} is not the beginning of an allocation that can be freed");
            return Err(self.refuse(Stop::new(Status::INVALID_VALUE, text)));
        }
        marks.into_iter().for_each(|marks| self.end_stream(marks));
        self.counts.frees += 1;
        Ok(())
    }
}
