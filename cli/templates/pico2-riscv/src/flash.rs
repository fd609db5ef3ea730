//! The board's flash, by the functions of the boot ROM.

use core::ptr;
use gradlet_core::runtime::embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write,
};
use rp235x_hal::rom_data;

/// Bytes of the flash.
const BYTES: usize = 4 << 20;
/// Address of the first byte.
const START: u32 = 0x1000_0000;
/// Bytes that the flash programs together.
const PAGE: usize = 256;
/// Flags of `flash_op`: a secure access to erase sectors, or to program pages.
const ERASE: u32 = 0x100;
const PROGRAM: u32 = 0x1_0100;

/// The flash.
pub struct Flash;

/// Calls the ROM's `flash_op` with interrupts off. The program in flash goes on afterwards.
///
/// # Safety
///
/// The program has no use for the `bytes` bytes from `offset` on. `buffer` is null, or points to
/// as many bytes in RAM.
unsafe fn operate(
    flags: u32,
    offset: u32,
    bytes: u32,
    buffer: *mut u8,
) -> Result<(), NorFlashErrorKind> {
    // SAFETY: the caller's promise. The ROM leaves the flash readable when it returns.
    let status = critical_section::with(|_| unsafe {
        rom_data::flash_op(flags, START + offset, bytes, buffer)
    });
    if status == 0 {
        Ok(())
    } else {
        Err(NorFlashErrorKind::Other)
    }
}

impl ErrorType for Flash {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for Flash {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        check_read(self, offset, bytes.len())?;
        let from = (START + offset) as *const u8;
        // SAFETY: the source is within the flash, which can be read as memory.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn capacity(&self) -> usize {
        BYTES
    }
}

impl NorFlash for Flash {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = 4096;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        check_erase(self, from, to)?;
        // SAFETY: `Slots` erases its own range, which the memory map reserves.
        unsafe { operate(ERASE, from, to - from, ptr::null_mut()) }
    }

    /// Programs whole pages. A byte of ones changes nothing, so the rest of a page consists of it.
    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, offset, bytes.len())?;
        let (mut offset, mut rest) = (offset as usize, bytes);
        while !rest.is_empty() {
            let within = offset % PAGE;
            let (now, later) = rest.split_at(rest.len().min(PAGE - within));
            let mut page = [0xff; PAGE];
            page[within..within + now.len()].copy_from_slice(now);
            let start = (offset - within) as u32;
            // SAFETY: `Slots` writes to its own range. The page is in RAM.
            unsafe { operate(PROGRAM, start, PAGE as u32, page.as_mut_ptr()) }?;
            (offset, rest) = (offset + now.len(), later);
        }
        Ok(())
    }
}
