//! Flash that is simulated in RAM, for boards without an emulated flash controller.

/// Memory that neither a reset nor the start of a firmware clears, and for which the linker has no other use.
pub struct RamFlash(pub usize);

impl RamFlash {
    /// Address of the first byte.
    pub fn begin(&self) -> *const u8 {
        self.0 as *const u8
    }

    /// Writes a word at offset `at`, a multiple of 4.
    ///
    /// # Safety
    ///
    /// The word is within the flash.
    pub unsafe fn write(&self, at: usize, word: u32) {
        // SAFETY: the caller's promise. The linker has no other use for the memory.
        unsafe { ((self.0 + at) as *mut u32).write_volatile(word) };
    }

    /// Sets all bits of `bytes` bytes from offset `at`, both multiples of 4.
    ///
    /// # Safety
    ///
    /// The bytes are within the flash.
    pub unsafe fn erase(&self, at: usize, bytes: usize) {
        // SAFETY: the caller's promise.
        (at..at + bytes).step_by(4).for_each(|at| unsafe { self.write(at, u32::MAX) });
    }
}
