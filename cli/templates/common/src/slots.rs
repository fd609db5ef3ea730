//! The flash of the checkpoints, as `memory.x` reserves it.

use core::ops::Range;

unsafe extern "C" {
    safe static __slots_start: u8;
    safe static __slots_end: u8;
}

/// Returns the slots' bytes in flash, counted from the first byte of the flash.
pub fn range() -> Range<u32> {
    (&raw const __slots_start) as u32..(&raw const __slots_end) as u32
}
