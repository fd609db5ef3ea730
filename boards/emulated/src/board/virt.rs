//! QEMU's RISC-V machine `virt`.

use super::ram_flash::RamFlash;

/// Frequency of the board's clock, in Hz. QEMU runs with one instruction per nanosecond.
pub const HZ: u32 = 1_000_000_000;
/// Ticks of [`CLOCK`] by which instructions are counted, and the instructions in that time.
pub const TICKS_AND_INSTRUCTIONS: [u32; 2] = [1, 1];
/// The processor's counter of instructions.
pub const CLOCK: Minstret = Minstret;
/// The machine's UART.
pub const UART: Ns16550 = Ns16550(0x1000_0000);
/// A MiB of the machine's RAM.
pub const FLASH: RamFlash = RamFlash(0x8080_0000);
/// Register of the machine's test device. A write of [`RESET`] resets the machine.
const TEST: *mut u32 = 0x10_0000 as *mut u32;
const RESET: u32 = 0x7777;

/// The processor's counter of instructions, which always runs.
pub struct Minstret;

impl Minstret {
    /// Does nothing.
    pub fn start(&self) {}

    /// Returns the low word of the number of instructions.
    #[inline]
    pub fn ticks(&self) -> u32 {
        riscv::register::minstret::read() as u32
    }
}

/// Registers of an NS16550: THR, IER, FCR, LCR, MCR, LSR.
pub struct Ns16550(usize);

impl Ns16550 {
    /// Does nothing: QEMU's UART sends at once.
    pub fn start(&self, _divider: u32) {}

    /// True if the transmit buffer still holds the previous byte.
    pub fn is_full(&self) -> bool {
        // SAFETY: LSR is a register that can be read at any time. Its bit 5 says that THR is empty.
        unsafe { (self.0 as *mut u8).add(5).read_volatile() & 0x20 == 0 }
    }

    /// Sends a byte. The transmit buffer must be empty.
    pub fn put(&self, byte: u8) {
        // SAFETY: THR accepts a byte while it is empty.
        unsafe { (self.0 as *mut u8).write_volatile(byte) };
    }
}

/// Resets the machine.
pub fn reset() -> ! {
    // SAFETY: the address is the register of the test device.
    unsafe { TEST.write_volatile(RESET) };
    loop {
        core::hint::spin_loop();
    }
}
