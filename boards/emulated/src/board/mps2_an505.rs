//! Arm's MPS2 board with a Cortex-M33. The firmware runs in the secure state, and so uses the secure addresses.

use super::cmsdk_timer::Timer;
use super::cmsdk_uart::Uart;
use super::ram_flash::RamFlash;

/// Frequency of the board's clock, in Hz.
pub const HZ: u32 = 20_000_000;
/// Ticks of [`CLOCK`] by which instructions are counted, and the instructions in that time: a tick is 50 ns, an instruction 64 ns.
pub const TICKS_AND_INSTRUCTIONS: [u32; 2] = [32, 25];
/// The board's first timer.
pub const CLOCK: Timer = Timer(0x5000_0000);
/// The board's first UART.
pub const UART: Uart = Uart(0x5020_0000);
/// The second MiB of the board's RAM.
pub const FLASH: RamFlash = RamFlash(0x3810_0000);
