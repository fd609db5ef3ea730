//! The driver and its devices.

use super::module::MOST_SHARED;
use crate::driver::memory::Memory;
use crate::driver::state::{Device, Emulator, call, emulator, give};
use crate::driver::status::{Outcome, Status};
use std::ffi::c_char;

/// Initialises the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: u32) -> Status {
    let mut emulator = emulator();
    if flags != 0 {
        return Status::INVALID_VALUE;
    }
    if emulator.configuration.no_device {
        return Status::NO_DEVICE;
    }
    if !emulator.is_initialised {
        let configuration = emulator.configuration.clone();
        emulator.memory = Memory::new(configuration.devices, configuration.memory, configuration.uninitialised);
        emulator.devices.resize_with(configuration.devices, Device::default);
        emulator.is_initialised = true;
    }
    Status::SUCCESS
}

/// Returns the version of CUDA that the driver supports. It needs no initialisation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> Status {
    give(version, emulator().configuration.driver as i32).into()
}

/// Returns the number of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> Status {
    call(|emulator| give(count, emulator.devices.len() as i32))
}

/// Returns the device with this ordinal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut i32, ordinal: i32) -> Status {
    call(|emulator| emulator.device(ordinal).and_then(|_| give(device, ordinal)))
}

/// Returns the name of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, size: i32, device: i32) -> Status {
    call(|emulator| {
        emulator.device(device)?;
        give_text(name, usize::try_from(size).unwrap_or(0), &emulator.configuration.name)
    })
}

/// Returns the address of a device on the bus.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(address: *mut c_char, size: i32, device: i32) -> Status {
    call(|emulator| {
        let device = emulator.device(device)?;
        give_text(address, usize::try_from(size).unwrap_or(0), &format!("0000:{:02X}:00.0", device + 1))
    })
}

/// Returns the identity of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(identity: *mut [u8; 16], device: i32) -> Status {
    call(|emulator| {
        let mut bytes = *b"CUDA emulator  0";
        bytes[15] += emulator.device(device)? as u8;
        give(identity, bytes)
    })
}

/// Returns the size of a device's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> Status {
    call(|emulator| {
        let device = emulator.device(device)?;
        give(bytes, emulator.memory.info(device).1 as usize)
    })
}

/// Returns an attribute of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) -> Status {
    call(|emulator| {
        let device = emulator.device(device)?;
        give(value, emulator.attribute(attribute, device).ok_or(Status::INVALID_VALUE)?)
    })
}

impl Emulator {
    /// Checks the ordinal of a device.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<usize> {
        usize::try_from(ordinal).ok().filter(|&device| device < self.devices.len()).ok_or(Status::INVALID_DEVICE)
    }

    fn attribute(&self, attribute: i32, device: usize) -> Option<i32> {
        let capability = self.configuration.capability as i32;
        Some(match attribute {
            // Limits of a block and of a grid.
            1..=3 => 1024,
            4 => 64,
            5 => i32::MAX,
            6 | 7 => 65_535,
            // Shared memory of a block, constant memory, lanes of a warp, registers of a block.
            8 => MOST_SHARED as i32,
            9 => 64 << 10,
            10 => 32,
            12 | 82 => 65_536,
            // Clock in kHz, processors, whether the time of kernels is limited.
            13 => 1_300_000,
            16 => self.configuration.multiprocessors as i32,
            17 => 0,
            // Shared with the host, can map its memory, compute mode, concurrent kernels, error correction.
            18 => i32::from(self.configuration.integrated),
            19 => 1,
            20 => 0,
            31 => 1,
            32 => 0,
            // Bus, slot, domain.
            33 => device as i32 + 1,
            34 | 50 => 0,
            // Clock and width of memory, level-2 cache, threads of a processor, copy engines, unified addresses.
            36 => 3_200_000,
            37 => 256,
            38 => 4 << 20,
            39 => self.configuration.threads() as i32,
            40 => 2,
            41 => 1,
            75 => capability / 10,
            76 => capability % 10,
            // Shared memory of a processor, and of a block that asks for more; memory that stays reserved in each block.
            81 => self.configuration.shared() as i32,
            97 => self.configuration.most_shared() as i32,
            111 => (self.configuration.shared() - self.configuration.most_shared()) as i32,
            // Registered memory of the host: whether there is any, and whether kernels use the host's pointers to it.
            91 | 99 => 1,
            // Memory pools.
            115 => 0,
            _ => return None,
        })
    }
}

/// Writes a text with a zero at its end, cut to `size` bytes.
pub(crate) fn give_text(place: *mut c_char, size: usize, text: &str) -> Outcome {
    if size == 0 || place.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    for (index, byte) in text.bytes().take(size - 1).chain([0]).enumerate() {
        give(place.wrapping_add(index), byte as c_char)?;
    }
    Ok(())
}
