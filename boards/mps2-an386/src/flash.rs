//! Simulated NOR flash that keeps its contents across a reset. QEMU emulates no flash controller for this board.
//!
//! The simulation uses the board's PSRAM, which neither a reset nor the start of a firmware clears. It behaves like flash: a write clears
//! bits word by word, an erase sets all bits of a block, and a word can be written only once between erases. On your board, use the driver
//! of your chip's flash instead.

use crate::restart;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write};

const BEGIN: *mut u8 = 0x2100_0000 as *mut u8;
const BYTES: usize = 1 << 20;
/// Address of the restart counter, in the word after the flash. QEMU's memory is zero at first.
const RESTARTS: *mut u32 = 0x2110_0000 as *mut u32;
const ERASED: u32 = u32::MAX;

/// Returns how many times this machine was restarted, and adds this start to the count. Call it once per start.
pub fn restarts() -> u32 {
    // SAFETY: the word is in PSRAM, for which the linker has no other use.
    unsafe {
        let count = RESTARTS.read_volatile();
        RESTARTS.write_volatile(count + 1);
        count
    }
}

/// Number of the operation in which the power fails.
static CUT: AtomicU32 = AtomicU32::new(u32::MAX);

/// Makes the power fail in the middle of operation number `operation` of a [`Flash`], counted from 0: only the first half of the
/// operation's bytes is changed, and the machine restarts.
pub fn cut_at(operation: u32) {
    CUT.store(operation, Ordering::Relaxed);
}

/// The simulated flash.
#[derive(Default)]
pub struct Flash {
    /// Number of operations so far: words written and blocks erased.
    pub operations: u32,
}

impl Flash {
    /// Sets the `words` 32-bit words from offset `at`. `value` returns the new value of the word with this index, counted from `at`.
    #[inline]
    fn operate(&mut self, at: usize, words: usize, value: impl Fn(usize) -> u32) {
        let cut = CUT.load(Ordering::Relaxed) == self.operations;
        self.operations += 1;
        for index in 0..if cut { words / 2 } else { words } {
            // SAFETY: the callers have checked that the words are within the flash and aligned. The linker has no other use for them.
            unsafe { BEGIN.add(at).cast::<u32>().add(index).write_volatile(value(index)) };
        }
        if cut {
            restart();
        }
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
        unsafe { ptr::copy_nonoverlapping(BEGIN.add(offset as usize), bytes.as_mut_ptr(), bytes.len()) };
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
        (from..to).step_by(Self::ERASE_SIZE).for_each(|block| self.operate(block as usize, Self::ERASE_SIZE / 4, |_| ERASED));
        Ok(())
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, offset, bytes.len())?;
        for (at, bytes) in (offset as usize..).step_by(Self::WRITE_SIZE).zip(bytes.as_chunks::<{ Self::WRITE_SIZE }>().0) {
            let [a, b, c, d, e, f, g, h] = *bytes;
            let words = [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])];
            // SAFETY: as in `operate`.
            let old = unsafe { BEGIN.add(at).cast::<[u32; 2]>().read_volatile() };
            if old != [ERASED; 2] {
                return Err(NorFlashErrorKind::Other);
            }
            self.operate(at, words.len(), |index| if index == 0 { words[0] } else { words[1] });
        }
        Ok(())
    }
}
