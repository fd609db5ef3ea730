//! Arm's MPS3 board with a Cortex-M55. The firmware runs in the secure state, and so uses the secure addresses.

use super::cmsdk_uart::Uart;
use super::ram_flash::RamFlash;

/// Frequency of the board's clock, in Hz.
pub const HZ: u32 = 32_000_000;
/// Ticks of [`CLOCK`] by which instructions are counted, and the instructions in that time: a tick is 31.25 ns, an instruction 64 ns.
pub const TICKS_AND_INSTRUCTIONS: [u32; 2] = [256, 125];
/// The board's system counter.
pub const CLOCK: Counter = Counter(0x5810_0000);
/// The board's first UART.
pub const UART: Uart = Uart(0x5930_3000);
/// The first MiB of the board's SRAM.
pub const FLASH: RamFlash = RamFlash(0x3100_0000);

/// Registers of the system counter: CNTCR, CNTSR, CNTCV (low word, high word).
pub struct Counter(usize);

impl Counter {
    /// Starts the counter.
    pub fn start(&self) {
        // SAFETY: CNTCR is a register of the counter, which nothing else uses. Its first bit enables the counter.
        unsafe { (self.0 as *mut u32).write_volatile(1) };
    }

    /// Returns the number of ticks since the start. It wraps.
    #[inline]
    pub fn ticks(&self) -> u32 {
        // SAFETY: CNTCV is a register that can be read at any time.
        unsafe { (self.0 as *mut u32).add(2).read_volatile() }
    }
}
