//! The CMSDK timer of Arm's boards, which counts down.

/// Registers of a timer: CTRL, VALUE, RELOAD.
pub struct Timer(pub usize);

impl Timer {
    /// Starts the timer.
    pub fn start(&self) {
        let registers = self.0 as *mut u32;
        // SAFETY: the addresses are registers of the timer, which nothing else uses.
        unsafe {
            registers.add(2).write_volatile(u32::MAX);
            registers.add(1).write_volatile(u32::MAX);
            registers.write_volatile(1);
        }
    }

    /// Returns the number of ticks since the start. It wraps.
    #[inline]
    pub fn ticks(&self) -> u32 {
        // SAFETY: VALUE is a register that can be read at any time.
        !unsafe { (self.0 as *mut u32).add(1).read_volatile() }
    }
}
