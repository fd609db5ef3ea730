//! The stack that a function uses. Memory below the stack pointer is painted, and the function
//! paints it over.

const PAINT: u32 = 0xa5a5_a5a5;
/// Bytes below the stack pointer that are not painted, because the painting function may use them.
const MARGIN: usize = 64;

unsafe extern "C" {
    static mut __sheap: u32;
}

/// Calls `function`. Returns its result, and the bytes of stack that it uses.
#[inline(never)]
pub fn of<T>(function: impl FnOnce() -> T) -> (T, usize) {
    let before = cortex_m::register::msp::read() as usize;
    paint();
    let result = function();
    (result, before - lowest())
}

#[inline(never)]
fn paint() {
    let mut word = &raw mut __sheap;
    let end = (cortex_m::register::msp::read() as usize - MARGIN) as *mut u32;
    while word < end {
        // SAFETY: the memory from the last static to the stack's live part is unused.
        unsafe {
            word.write_volatile(PAINT);
            word = word.add(1);
        }
    }
}

/// Returns the lowest address that is not painted any more.
#[inline(never)]
fn lowest() -> usize {
    let mut word = &raw mut __sheap;
    // SAFETY: the stack's live part is not painted, so the words that are read end there.
    while unsafe { word.read_volatile() } == PAINT {
        word = word.wrapping_add(1);
    }
    word as usize
}
