//! Instruction counter. Under `-icount shift=6`, QEMU advances time by 64 ns per instruction. A timer of the board measures this time.

/// Registers of the board's first CMSDK timer: CTRL, VALUE, RELOAD. It counts down at 25 MHz.
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

/// Instructions per second of the board's time.
pub const HZ: u32 = 1_000_000_000 / 64;

/// Returns a clock that counts instructions, and wraps. The caller must read it at least once in 2.6 billion instructions.
pub fn clock() -> impl FnMut() -> u32 {
    let (mut last, mut ticks_by_five) = (ticks(), 0u64);
    move || {
        let now = ticks();
        ticks_by_five += u64::from(now.wrapping_sub(last)) * 5;
        last = now;
        (ticks_by_five / 8) as u32
    }
}

/// Runs `work`. Returns its result and its instruction count, which is exact to within 2.
#[inline]
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, u32) {
    let before = ticks();
    let result = work();
    let passed = ticks().wrapping_sub(before);
    // A tick is 40 ns, an instruction 64 ns.
    (result, (u64::from(passed) * 5 / 8) as u32)
}
