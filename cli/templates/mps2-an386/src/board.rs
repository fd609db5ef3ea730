//! The board's UART, a simulation of flash, and the end of a run.

use core::convert::Infallible;
use core::ptr;
use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};
use gradlet_core::runtime::embedded_io;
use gradlet_core::runtime::embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write,
};

/// Ends QEMU, with success or with failure.
pub fn exit(success: bool) -> ! {
    debug::exit(if success { EXIT_SUCCESS } else { EXIT_FAILURE });
    loop {
        cortex_m::asm::bkpt();
    }
}

/// Address of the board's first UART. Its registers are DATA, STATE, CTRL, INTSTATUS and BAUDDIV.
const UART: *mut u32 = 0x4000_4000 as *mut u32;
/// Bit of STATE: the UART still holds the previous byte.
const FULL: u32 = 1;

/// The board's first UART. QEMU sends each byte immediately.
pub struct Uart;

impl Uart {
    /// Enables the UART at 115,200 baud, with the board's clock of 25 MHz.
    pub fn new() -> Uart {
        // SAFETY: the addresses are registers of the UART, which nothing else uses.
        unsafe {
            UART.add(4).write_volatile(25_000_000 / 115_200);
            UART.add(2).write_volatile(1);
        }
        Uart
    }

    fn is_full(&self) -> bool {
        // SAFETY: STATE can be read at any time.
        unsafe { UART.add(1).read_volatile() & FULL != 0 }
    }
}

impl embedded_io::ErrorType for Uart {
    type Error = Infallible;
}

impl embedded_io::Write for Uart {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        for &byte in bytes {
            while self.is_full() {}
            // SAFETY: DATA takes a byte while the UART is not full.
            unsafe { UART.write_volatile(byte.into()) };
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        while self.is_full() {}
        Ok(())
    }
}

/// Address of the board's PSRAM. The linker has no use for it, and a reset does not clear it.
const PSRAM: usize = 0x2100_0000;

/// Flash that is simulated in RAM, because QEMU emulates none for this board.
pub struct RamFlash;

impl RamFlash {
    /// Size of the flash, in bytes.
    pub const BYTES: u32 = 1 << 20;
}

impl ErrorType for RamFlash {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for RamFlash {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        check_read(self, offset, bytes.len())?;
        // SAFETY: the source is within the PSRAM, and `bytes` is not.
        unsafe {
            ptr::copy_nonoverlapping(
                (PSRAM + offset as usize) as *const u8,
                bytes.as_mut_ptr(),
                bytes.len(),
            )
        };
        Ok(())
    }

    fn capacity(&self) -> usize {
        Self::BYTES as usize
    }
}

impl NorFlash for RamFlash {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = 4096;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        check_erase(self, from, to)?;
        // SAFETY: the bytes are within the PSRAM.
        unsafe {
            ptr::write_bytes(
                (PSRAM + from as usize) as *mut u8,
                0xff,
                (to - from) as usize,
            )
        };
        Ok(())
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, offset, bytes.len())?;
        // SAFETY: the target is within the PSRAM, and `bytes` is not.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                (PSRAM + offset as usize) as *mut u8,
                bytes.len(),
            )
        };
        Ok(())
    }
}
