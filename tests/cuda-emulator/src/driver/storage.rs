//! The bytes behind an allocation, and who owns them.

use super::status::{Outcome, Status};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Bytes.
pub(crate) struct Storage {
    pointer: NonNull<u8>,
    pub bytes: usize,
    owner: Owner,
}

/// Owner of bytes.
enum Owner {
    /// The emulator has allocated them.
    Emulator(Layout),
    /// The program has them, and lends them.
    Program,
    /// They are a part of a mapped file.
    Mapping { _mapping: Arc<Mapping> },
}

// SAFETY: the storage owns its bytes. Those of page-locked and imported memory are shared with the host's program, as with a GPU.
unsafe impl Send for Storage {}

impl Storage {
    /// Allocates bytes that begin as zeros, which the system provides when they are touched.
    pub(crate) fn allocate(bytes: usize, align: usize) -> Outcome<Storage> {
        let layout = Layout::from_size_align(bytes, align).map_err(|_| Status::OUT_OF_MEMORY)?;
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the size is not zero.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Status::OUT_OF_MEMORY)?;
        Ok(Storage { pointer, bytes, owner: Owner::Emulator(layout) })
    }

    /// Borrows bytes of the program, which must exist until the storage is dropped. Returns `None` if the pointer is null.
    pub(crate) fn lent(pointer: *mut u8, bytes: usize) -> Option<Storage> {
        Some(Storage { pointer: NonNull::new(pointer)?, bytes, owner: Owner::Program })
    }

    /// Returns a part of a mapped file. Returns `None` if the file has no such part.
    pub(crate) fn mapped(mapping: &Arc<Mapping>, offset: usize, bytes: usize) -> Option<Storage> {
        offset.checked_add(bytes).filter(|&end| bytes > 0 && end <= mapping.bytes)?;
        // SAFETY: the offset lies within the mapping.
        let pointer = unsafe { mapping.pointer.add(offset) };
        Some(Storage { pointer, bytes, owner: Owner::Mapping { _mapping: mapping.clone() } })
    }

    /// Returns the address of the first byte in the host's memory.
    pub(crate) fn address(&self) -> u64 {
        self.pointer.as_ptr() as u64
    }

    /// Returns all bytes.
    pub(crate) fn all(&mut self) -> &mut [u8] {
        // SAFETY: the owner has this many bytes, and they are initialised.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Owner::Emulator(layout) = self.owner {
            // SAFETY: the pointer was allocated with this layout.
            unsafe { dealloc(self.pointer.as_ptr(), layout) }
        }
    }
}

/// A file in memory.
pub(crate) struct Mapping {
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is as long-lived as its owner, and only addresses of it are passed on.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

unsafe extern "C" {
    fn mmap(address: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
    fn munmap(address: *mut c_void, length: usize) -> c_int;
}

/// Pages may be read and written.
const READ_WRITE: c_int = 3;
/// Other mappings of the file see what is written.
const SHARED: c_int = 1;

impl Mapping {
    /// Maps the first bytes of a file, which may be closed afterwards. Fails if it is shorter or cannot be mapped.
    pub(crate) fn new(file: &File, bytes: usize) -> Outcome<Arc<Mapping>> {
        let size = file.metadata().map_err(|_| Status::INVALID_VALUE)?.len();
        if bytes == 0 || bytes as u64 > size {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the system chooses the address, and the file is open.
        let pointer = unsafe { mmap(null_mut(), bytes, READ_WRITE, SHARED, file.as_raw_fd(), 0) };
        let pointer = NonNull::new(pointer.cast::<u8>()).filter(|pointer| pointer.as_ptr() as isize != -1);
        Ok(Arc::new(Mapping { pointer: pointer.ok_or(Status::INVALID_VALUE)?, bytes }))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the range that was mapped, and no storage uses it any more.
        unsafe { munmap(self.pointer.as_ptr().cast(), self.bytes) };
    }
}
