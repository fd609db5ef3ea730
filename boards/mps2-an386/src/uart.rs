//! The board's first UART, as a writer.

use core::convert::Infallible;
use embedded_io::{ErrorType, Write, WriteReady};

/// Registers of the CMSDK UART: DATA, STATE, CTRL, INTSTATUS, BAUDDIV.
const UART: *mut u32 = 0x4000_4000 as *mut u32;
/// Clock frequency of the board and of the UART, in Hz.
pub const HZ: u32 = 25_000_000;
/// Bit of STATE: the transmit buffer still holds the previous byte.
const TX_FULL: u32 = 1;
/// Bit of CTRL: enables the transmitter.
const TX_ENABLE: u32 = 1;

/// The UART as a writer. On a real board, sending a byte takes time, but QEMU sends it immediately. To simulate this time, the next byte
/// waits for [`Uart::tick`].
pub struct Uart {
    ready: bool,
}

impl Uart {
    /// Enables the UART at `baud` bits per second. A byte takes 10 bits.
    pub fn new(baud: u32) -> Uart {
        // SAFETY: the addresses are registers of the UART, which nothing else uses.
        unsafe {
            UART.add(4).write_volatile((HZ / baud.max(1)).max(16));
            UART.add(2).write_volatile(TX_ENABLE);
        }
        Uart { ready: true }
    }

    /// Allows the next byte: the time that the previous one takes on the line has passed.
    pub fn tick(&mut self) {
        self.ready = true;
    }

    /// True if the transmit buffer still holds the previous byte.
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
        // SAFETY: DATA accepts a byte while STATE is not full.
        unsafe { UART.write_volatile(byte.into()) };
        self.ready = false;
        Ok(1)
    }

    /// Waits until the UART starts to send the last byte. STATE does not report the end of this transmission.
    fn flush(&mut self) -> Result<(), Infallible> {
        while self.is_full() {
            cortex_m::asm::nop();
        }
        Ok(())
    }
}
