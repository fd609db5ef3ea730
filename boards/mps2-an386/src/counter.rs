//! Counts instructions: QEMU under `-icount shift=6` lets 64 ns pass with each, and a timer of the board tells the time.

/// The board's first CMSDK timer: registers CTRL, VALUE, RELOAD; it counts down at 25 MHz.
const TIMER: *mut u32 = 0x4000_0000 as *mut u32;

/// Starts the counter. It wraps after 2.6 billion instructions.
pub fn start() {
    // SAFETY: the addresses are registers of the timer, which nothing else uses.
    unsafe {
        TIMER.add(2).write_volatile(u32::MAX);
        TIMER.add(1).write_volatile(u32::MAX);
        TIMER.write_volatile(1);
    }
}

#[inline]
fn ticks() -> u32 {
    // SAFETY: VALUE is a register that can be read at any time.
    !unsafe { TIMER.add(1).read_volatile() }
}

/// How many instructions the clock counts in a second of the board.
pub const HZ: u32 = 1_000_000_000 / 64;

/// A clock that counts instructions, and wraps. It must be read once in 2.6 billion.
pub fn clock() -> impl FnMut() -> u32 {
    let (mut last, mut ticks_by_five) = (ticks(), 0u64);
    move || {
        let now = ticks();
        ticks_by_five += u64::from(now.wrapping_sub(last)) * 5;
        last = now;
        (ticks_by_five / 8) as u32
    }
}

/// Runs `work`; gives its result and the instructions it took, to within two.
#[inline]
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, u32) {
    let before = ticks();
    let result = work();
    let passed = ticks().wrapping_sub(before);
    // 40 ns a tick, 64 ns an instruction.
    (result, (u64::from(passed) * 5 / 8) as u32)
}
