//! NOR flash that keeps its contents across a reset. Of these boards, QEMU emulates only the micro:bit's flash. For the others, a part of
//! the RAM that nothing clears behaves like flash: an erase sets all bits of a block, and a word can be written only once between erases.
//! On your board, use the driver of your chip's flash instead.

use crate::board::FLASH;
use crate::restart;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write};

const BYTES: usize = if cfg!(feature = "microbit") { 128 << 10 } else { 1 << 20 };
const ERASED: u32 = u32::MAX;
/// Number of restarts. A reset does not clear the word, and QEMU's memory is zero at first.
#[unsafe(link_section = ".uninit.restarts")]
static RESTARTS: AtomicU32 = AtomicU32::new(0);

/// Returns how many times this machine was restarted, and adds this start to the count. Call it once per start.
pub fn restarts() -> u32 {
    let count = RESTARTS.load(Ordering::Relaxed);
    RESTARTS.store(count + 1, Ordering::Relaxed);
    count
}

/// Number of the operation in which the power fails.
static CUT: AtomicU32 = AtomicU32::new(u32::MAX);

/// Makes the power fail in the middle of operation number `operation` of a [`Flash`], counted from 0: only the first half of the
/// operation's bytes is changed, and the machine restarts.
pub fn cut_at(operation: u32) {
    CUT.store(operation, Ordering::Relaxed);
}

/// Returns `length` bytes of the flash from `offset` on, as the processor reads them. They stay in place, so a model can run there. The
/// caller must not erase or write these bytes while it uses them.
pub fn bytes(offset: u32, length: u32) -> &'static [u8] {
    assert!(offset as usize <= BYTES && length as usize <= BYTES - offset as usize);
    // SAFETY: the bytes are within the flash.
    unsafe { core::slice::from_raw_parts(FLASH.begin().add(offset as usize), length as usize) }
}

/// The flash.
#[derive(Default)]
pub struct Flash {
    /// Number of operations so far: words written and blocks erased.
    pub operations: u32,
}

impl Flash {
    /// Counts an operation. True if the power fails in it.
    fn fails(&mut self) -> bool {
        let fails = CUT.load(Ordering::Relaxed) == self.operations;
        self.operations += 1;
        fails
    }
}

impl ErrorType for Flash {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for Flash {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        check_read(self, offset, bytes.len())?;
        // SAFETY: the source is within the flash, and `bytes` is not.
        unsafe { ptr::copy_nonoverlapping(FLASH.begin().add(offset as usize), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn capacity(&self) -> usize {
        BYTES
    }
}

impl NorFlash for Flash {
    const WRITE_SIZE: usize = 8;
    const ERASE_SIZE: usize = 4096;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        check_erase(self, from, to)?;
        for block in (from as usize..to as usize).step_by(Self::ERASE_SIZE) {
            let fails = self.fails();
            // SAFETY: the block is within the flash.
            unsafe { FLASH.erase(block, if fails { Self::ERASE_SIZE / 2 } else { Self::ERASE_SIZE }) };
            if fails {
                restart();
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, offset, bytes.len())?;
        for (at, bytes) in (offset as usize..).step_by(Self::WRITE_SIZE).zip(bytes.as_chunks::<{ Self::WRITE_SIZE }>().0) {
            let [a, b, c, d, e, f, g, h] = *bytes;
            // SAFETY: the two words are within the flash.
            let old = unsafe { FLASH.begin().add(at).cast::<[u32; 2]>().read_volatile() };
            if old != [ERASED; 2] {
                return Err(NorFlashErrorKind::Other);
            }
            let fails = self.fails();
            // SAFETY: as above.
            unsafe { FLASH.write(at, u32::from_le_bytes([a, b, c, d])) };
            if fails {
                restart();
            }
            // SAFETY: as above.
            unsafe { FLASH.write(at + 4, u32::from_le_bytes([e, f, g, h])) };
        }
        Ok(())
    }
}
