//! The board's first UART, as a writer.

use core::convert::Infallible;
use embedded_io::{ErrorType, Write, WriteReady};

/// A CMSDK UART: registers DATA, STATE, CTRL, INTSTATUS, BAUDDIV.
const UART: *mut u32 = 0x4000_4000 as *mut u32;
/// What drives the board, and the UART.
pub const HZ: u32 = 25_000_000;
/// In STATE: the byte before is still waiting.
const TX_FULL: u32 = 1;
/// In CTRL.
const TX_ENABLE: u32 = 1;

/// The UART. On the board a byte takes its time; QEMU's is gone at once, so [`Uart::tick`] tells when the next one may go.
pub struct Uart {
    ready: bool,
}

impl Uart {
    /// Starts to send at so many bits a second, 10 for each byte.
    pub fn new(baud: u32) -> Uart {
        // SAFETY: the addresses are registers of the UART, which nothing else uses.
        unsafe {
            UART.add(4).write_volatile((HZ / baud.max(1)).max(16));
            UART.add(2).write_volatile(TX_ENABLE);
        }
        Uart { ready: true }
    }

    /// The time of a byte is over.
    pub fn tick(&mut self) {
        self.ready = true;
    }

    /// True if the byte before is still waiting.
    fn is_full(&self) -> bool {
        // SAFETY: STATE is a register that can be read at any time.
        unsafe { UART.add(1).read_volatile() & TX_FULL != 0 }
    }
}

impl ErrorType for Uart {
    type Error = Infallible;
}

impl WriteReady for Uart {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.ready && !self.is_full())
    }
}

impl Write for Uart {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let Some(&byte) = bytes.first() else { return Ok(0) };
        while !self.write_ready()? {
            cortex_m::asm::nop();
        }
        // SAFETY: DATA takes a byte while STATE says so.
        unsafe { UART.write_volatile(byte.into()) };
        self.ready = false;
        Ok(1)
    }

    /// Waits until the last byte is on its way. STATE does not say when it is over.
    fn flush(&mut self) -> Result<(), Infallible> {
        while self.is_full() {
            cortex_m::asm::nop();
        }
        Ok(())
    }
}
