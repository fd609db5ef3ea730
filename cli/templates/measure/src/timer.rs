//! The clock of the board: a CMSDK timer, which counts down.

/// Registers of the timer: CTRL, VALUE, RELOAD.
const TIMER: *mut u32 = {{clock}} as *mut u32;

pub fn start() {
    // SAFETY: the addresses are registers of the timer, which nothing else uses.
    unsafe {
        TIMER.add(2).write_volatile(u32::MAX);
        TIMER.add(1).write_volatile(u32::MAX);
        TIMER.write_volatile(1);
    }
}

/// Returns the number of ticks since the start. It wraps.
#[inline]
pub fn ticks() -> u32 {
    // SAFETY: VALUE is a register that can be read at any time.
    !unsafe { TIMER.add(1).read_volatile() }
}
