//! Memory that the program or another part of the system owns: registered memory of the host, and imported files.

use crate::driver::block::Place;
use crate::driver::state::{Handle, call_on_device, give};
use crate::driver::status::{Status, Stop};
use crate::driver::storage::{Mapping, Storage};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::Arc;

/// The contexts of all devices may use the memory.
const PORTABLE: u32 = 1;
/// Kernels may use the memory.
const MAPPED: u32 = 2;
/// The memory is another device's, or is only read. These change nothing here.
const OTHERS: u32 = 4 | 8;
/// Kind of a handle: the descriptor of a file without meaning for the program.
const OPAQUE_FILE: u32 = 1;

/// A handle of memory to import: the driver's `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ExternalMemory {
    /// Kind of the handle.
    pub kind: u32,
    /// A union, of which the emulator has only the descriptor of a file. It has the size and alignment of two pointers.
    pub handle: ExternalHandle,
    /// Bytes.
    pub size: u64,
    /// 1 if no other part of the system uses the memory.
    pub flags: u32,
    /// Must be 0.
    pub reserved: [u32; 16],
}

/// The union of handles.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
pub struct ExternalHandle {
    /// The descriptor of a file.
    pub file: i32,
    /// The rest of the union.
    pub rest: [u32; 3],
}

/// A part of imported memory: the driver's `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ExternalBuffer {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Must be 0.
    pub flags: u32,
    /// Must be 0.
    pub reserved: [u32; 16],
}

/// Imported memory.
pub(crate) struct Import {
    pub device: usize,
    mapping: Arc<Mapping>,
    /// Addresses of the buffers over it.
    buffers: Vec<u64>,
}

/// Page-locks memory of the program, which keeps its contents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(pointer: *mut u8, bytes: usize, flags: u32) -> Status {
    call_on_device(|emulator, device| {
        let storage = Storage::lent(pointer, bytes).filter(|_| bytes > 0 && flags & !(PORTABLE | MAPPED | OTHERS) == 0);
        let place = Place::Host { portable: flags & PORTABLE != 0, mapped: flags & MAPPED != 0, registered: true };
        emulator.memory.register(device, storage.ok_or(Status::INVALID_VALUE)?, place).map(drop)
    })
}

/// Ends the page-locking of memory of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(pointer: *mut u8) -> Status {
    call_on_device(|emulator, _| {
        let freed = emulator.free(pointer as u64, |block| matches!(block.place, Place::Host { registered: true, .. }));
        freed.map_err(|_| Status::HOST_MEMORY_NOT_REGISTERED)
    })
}

/// Imports memory that a file stands for. The driver closes the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuImportExternalMemory(memory: *mut Handle, description: *const ExternalMemory) -> Status {
    call_on_device(|emulator, device| {
        // SAFETY: the caller gives a description, or null.
        let found = unsafe { description.as_ref() }.ok_or(Status::INVALID_VALUE)?;
        if found.kind != OPAQUE_FILE || found.flags > 1 || found.reserved != [0; 16] || found.handle.file < 0 {
            let text = format!("InvalidValue: external memory of the kind {} with the file {}", found.kind, found.handle.file);
            return Err(emulator.refuse(Stop::new(Status::INVALID_VALUE, text)));
        }
        // SAFETY: the caller gives the file away, unless the import fails.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(found.handle.file) });
        let mapping = Mapping::new(&file, found.size as usize).map_err(|status| {
            let text = format!("InvalidValue: the file of external memory does not have {} bytes", found.size);
            emulator.refuse(Stop::new(status, text))
        })?;
        drop(ManuallyDrop::into_inner(file));
        let handle = emulator.handle();
        emulator.imports.insert(handle, Import { device, mapping, buffers: Vec::new() });
        give(memory, handle)
    })
}

/// Gives a part of imported memory an address, which `cuMemFree` frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuExternalMemoryGetMappedBuffer(address: *mut u64, memory: Handle, description: *const ExternalBuffer) -> Status {
    call_on_device(|emulator, device| {
        // SAFETY: the caller gives a description, or null.
        let found = unsafe { description.as_ref() }.filter(|found| found.flags == 0 && found.reserved == [0; 16]);
        let found = found.ok_or(Status::INVALID_VALUE)?;
        let import = emulator.imports.get_mut(&memory).filter(|import| import.device == device).ok_or(Status::INVALID_HANDLE)?;
        let Some(storage) = Storage::mapped(&import.mapping, found.offset as usize, found.size as usize) else {
            let text = format!("InvalidValue: {} bytes from {} on are past the end of the external memory", found.size, found.offset);
            return Err(emulator.refuse(Stop::new(Status::INVALID_VALUE, text)));
        };
        let buffer = emulator.memory.import(device, storage);
        import.buffers.push(buffer);
        give(address, buffer)
    })
}

/// Ends the use of imported memory. The buffers over it may only be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDestroyExternalMemory(memory: Handle) -> Status {
    call_on_device(|emulator, _| {
        let import = emulator.imports.remove(&memory).ok_or(Status::INVALID_HANDLE)?;
        for address in import.buffers {
            if let Some(block) = emulator.memory.find(address).filter(|block| block.address == address) {
                block.ban(0..block.bytes(), true);
            }
        }
        Ok(())
    })
}
