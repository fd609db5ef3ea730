//! The clock of the board: its system counter.

/// Registers of the counter: CNTCR, CNTSR, CNTCV (low word, high word).
const COUNTER: *mut u32 = {{clock}} as *mut u32;

pub fn start() {
    // SAFETY: CNTCR is a register of the counter, which nothing else uses. Its first bit enables it.
    unsafe { COUNTER.write_volatile(1) };
}

/// Returns the number of ticks since the start. It wraps.
#[inline]
pub fn ticks() -> u32 {
    // SAFETY: CNTCV is a register that can be read at any time.
    unsafe { COUNTER.add(2).read_volatile() }
}
