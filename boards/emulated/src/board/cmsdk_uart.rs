//! The CMSDK UART of Arm's boards.

/// Registers of a UART: DATA, STATE, CTRL, INTSTATUS, BAUDDIV.
pub struct Uart(pub usize);

/// Bit of STATE: the transmit buffer still holds the previous byte.
const TX_FULL: u32 = 1;
/// Bit of CTRL: enables the transmitter.
const TX_ENABLE: u32 = 1;

impl Uart {
    /// Enables the UART. A bit takes `divider` ticks of its clock.
    pub fn start(&self, divider: u32) {
        let registers = self.0 as *mut u32;
        // SAFETY: the addresses are registers of the UART, which nothing else uses.
        unsafe {
            registers.add(4).write_volatile(divider.max(16));
            registers.add(2).write_volatile(TX_ENABLE);
        }
    }

    /// True if the transmit buffer still holds the previous byte.
    pub fn is_full(&self) -> bool {
        // SAFETY: STATE is a register that can be read at any time.
        unsafe { (self.0 as *mut u32).add(1).read_volatile() & TX_FULL != 0 }
    }

    /// Sends a byte. The transmit buffer must be empty.
    pub fn put(&self, byte: u8) {
        // SAFETY: DATA accepts a byte while STATE is not full.
        unsafe { (self.0 as *mut u32).write_volatile(byte.into()) };
    }
}
