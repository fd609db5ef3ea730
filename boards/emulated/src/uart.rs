//! The board's first UART, as a writer.

use crate::board::{HZ, UART};
use core::convert::Infallible;
use embedded_io::{ErrorType, Write, WriteReady};

/// The UART as a writer. On a real board, sending a byte takes time, but QEMU sends it immediately. To simulate this time, the next byte
/// waits for [`Uart::tick`].
pub struct Uart {
    ready: bool,
    paced: bool,
}

impl Uart {
    /// Enables the UART at `baud` bits per second. A byte takes 10 bits.
    pub fn new(baud: u32) -> Uart {
        UART.start(HZ / baud.max(1));
        Uart { ready: true, paced: true }
    }

    /// Enables the UART, without the time that a byte takes.
    pub fn unpaced() -> Uart {
        UART.start(0);
        Uart { ready: true, paced: false }
    }

    /// Allows the next byte: the time that the previous one takes on the line has passed.
    pub fn tick(&mut self) {
        self.ready = true;
    }
}

impl ErrorType for Uart {
    type Error = Infallible;
}

impl WriteReady for Uart {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.ready && !UART.is_full())
    }
}

impl Write for Uart {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let Some(&byte) = bytes.first() else { return Ok(0) };
        while !self.write_ready()? {
            core::hint::spin_loop();
        }
        UART.put(byte);
        self.ready = !self.paced;
        Ok(1)
    }

    /// Waits until the UART starts to send the last byte. The UART does not report the end of this transmission.
    fn flush(&mut self) -> Result<(), Infallible> {
        while UART.is_full() {
            core::hint::spin_loop();
        }
        Ok(())
    }
}
