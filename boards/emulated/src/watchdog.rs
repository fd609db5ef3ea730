//! The board's watchdog. It counts down at 25 MHz, and ends the firmware with failure unless it is fed in time.

use crate::{Failure, end};

/// Registers of the watchdog: LOAD, VALUE, CONTROL, INTCLR.
const WATCHDOG: *mut u32 = 0x4000_8000 as *mut u32;
/// Time between two feedings: 2 ms, or 31,250 instructions.
const TICKS: u32 = 50_000;

/// Starts the watchdog.
pub fn start() {
    // SAFETY: the addresses are registers of the watchdog, which nothing else uses.
    unsafe {
        WATCHDOG.write_volatile(TICKS);
        WATCHDOG.add(2).write_volatile(1);
    }
}

/// Restarts the watchdog's time.
pub fn feed() {
    // SAFETY: a write to LOAD starts the countdown again.
    unsafe { WATCHDOG.write_volatile(TICKS) };
}

/// Stops the watchdog.
pub fn stop() {
    // SAFETY: CONTROL is a register of the watchdog.
    unsafe { WATCHDOG.add(2).write_volatile(0) };
}

/// Ends the firmware. A firmware with a watchdog calls this from its handler of the non-maskable interrupt.
pub fn bark() -> ! {
    end(Err(Failure::Check("watchdog")))
}
