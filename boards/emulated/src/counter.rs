//! Instruction counter. QEMU advances time by a fixed amount per instruction (`-icount`). A clock of the board measures this time.

use crate::board::{CLOCK, TICKS_AND_INSTRUCTIONS};

/// Ticks of the board's clock in which [`INSTRUCTIONS`] run. It is a power of two and a constant, so no firmware links a division.
const TICKS: u64 = TICKS_AND_INSTRUCTIONS[0] as u64;
const INSTRUCTIONS: u64 = TICKS_AND_INSTRUCTIONS[1] as u64;

/// Instructions per second of the board's time.
pub const HZ: u32 = (crate::board::HZ as u64 * INSTRUCTIONS / TICKS) as u32;

/// Starts the counter. It wraps after 2.6 billion instructions or more.
pub fn start() {
    CLOCK.start();
}

/// Returns a clock that counts instructions, and wraps. The caller must read it at least once in 2.6 billion instructions.
pub fn clock() -> impl FnMut() -> u32 {
    let (mut last, mut scaled) = (CLOCK.ticks(), 0u64);
    move || {
        let now = CLOCK.ticks();
        scaled += u64::from(now.wrapping_sub(last)) * INSTRUCTIONS;
        last = now;
        (scaled / TICKS) as u32
    }
}

/// Runs `work`. Returns its result and its instruction count, which is exact to within 2.
#[inline]
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, u32) {
    let before = CLOCK.ticks();
    let result = work();
    let passed = CLOCK.ticks().wrapping_sub(before);
    (result, (u64::from(passed) * INSTRUCTIONS / TICKS) as u32)
}
