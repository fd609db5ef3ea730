//! Arm's MPS2 board with a Cortex-M3 (`mps2-an385`), M4F (`mps2-an386`) or M7 (`mps2-an500`).

use super::cmsdk_timer::Timer;
use super::cmsdk_uart::Uart;
use super::ram_flash::RamFlash;

/// Frequency of the board's clock, in Hz.
pub const HZ: u32 = 25_000_000;
/// Ticks of [`CLOCK`] by which instructions are counted, and the instructions in that time: a tick is 40 ns, an instruction 64 ns.
pub const TICKS_AND_INSTRUCTIONS: [u32; 2] = [8, 5];
/// The board's first timer.
pub const CLOCK: Timer = Timer(0x4000_0000);
/// The board's first UART.
pub const UART: Uart = Uart(0x4000_4000);
/// The first MiB of the board's PSRAM.
pub const FLASH: RamFlash = RamFlash(if cfg!(feature = "mps2-an500") { 0x6000_0000 } else { 0x2100_0000 });
