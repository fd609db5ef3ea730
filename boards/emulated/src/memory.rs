//! Painted memory: it is filled with a known byte first, so that the used part can be measured afterwards.

use core::cell::UnsafeCell;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering};

const PAINT: u8 = 0xA5;
const PAINT_WORD: u32 = u32::from_ne_bytes([PAINT; 4]);
/// Bytes below the stack pointer that are not painted.
const MARGIN: usize = 64;
const CANARY: usize = 64;

unsafe extern "C" {
    static mut __sheap: u32;
    static _stack_start: u32;
}

#[inline(always)]
fn stack_pointer() -> usize {
    #[cfg(target_arch = "arm")]
    return cortex_m::register::msp::read() as usize;
    #[cfg(target_arch = "riscv32")]
    return riscv_sp();
}

#[cfg(target_arch = "riscv32")]
#[inline(always)]
fn riscv_sp() -> usize {
    let pointer;
    // SAFETY: the instruction only reads the stack pointer.
    unsafe { core::arch::asm!("mv {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// Paints the free memory between the last static and the stack pointer.
#[inline(never)]
pub fn paint_stack() {
    let mut word = &raw mut __sheap;
    let end = (stack_pointer() - MARGIN) as *mut u32;
    while word < end {
        // SAFETY: the linker reserves this memory for the stack, whose live part begins at `end`.
        unsafe {
            word.write_volatile(PAINT_WORD);
            word = word.add(1);
        }
    }
}

/// Returns the largest stack use since [`paint_stack`], in bytes.
#[inline(never)]
pub fn stack_high_water() -> u32 {
    let top = (&raw const _stack_start) as usize;
    let mut word = &raw const __sheap;
    // SAFETY: the words from here to the stack's top are RAM. Nothing above it is read.
    while (word as usize) < top && unsafe { word.read_volatile() } == PAINT_WORD {
        word = word.wrapping_add(1);
    }
    (top - word as usize) as u32
}

/// Paints the stack again, then calls `function`. Returns the function's result, and the largest stack use of the call in bytes.
#[inline(never)]
pub fn stack_of<T>(function: impl FnOnce() -> T) -> (T, u32) {
    paint_stack();
    let before = ((&raw const _stack_start) as usize - stack_pointer()) as u32;
    let result = function();
    (result, stack_high_water() - before)
}

/// A static arena of `N` bytes between canaries.
pub struct Arena<const N: usize> {
    memory: UnsafeCell<Memory<N>>,
    taken: AtomicBool,
}

#[repr(C, align(16))]
struct Memory<const N: usize> {
    below: [u8; CANARY],
    bytes: [u8; N],
    above: [u8; CANARY],
}

// SAFETY: `take` hands out the cell once.
unsafe impl<const N: usize> Sync for Arena<N> {}

impl<const N: usize> Arena<N> {
    /// Creates an arena for a `static`.
    pub const fn new() -> Arena<N> {
        let memory = Memory { below: [0; CANARY], bytes: [0; N], above: [0; CANARY] };
        Arena { memory: UnsafeCell::new(memory), taken: AtomicBool::new(false) }
    }

    /// Returns the arena at the first call, and `None` at later calls.
    pub fn take(&'static self) -> Option<Painted> {
        // Without an exchange in one instruction, which a Cortex-M0 lacks.
        let taken = critical_section::with(|_| {
            let taken = self.taken.load(Ordering::Acquire);
            self.taken.store(true, Ordering::Release);
            taken
        });
        if taken {
            return None;
        }
        // SAFETY: the flag was false, so there is no other reference.
        let memory = unsafe { &mut *self.memory.get() };
        let mut painted = Painted { below: &mut memory.below, bytes: &mut memory.bytes, above: &mut memory.above };
        painted.paint();
        Some(painted)
    }
}

impl<const N: usize> Default for Arena<N> {
    fn default() -> Arena<N> {
        Arena::new()
    }
}

/// A painted arena, which shows which of its bytes were written.
pub struct Painted {
    below: &'static mut [u8],
    /// The arena's bytes, without the canaries.
    pub bytes: &'static mut [u8],
    above: &'static mut [u8],
}

impl Painted {
    /// Paints the bytes and the canaries around them.
    pub fn paint(&mut self) {
        for part in [&mut *self.below, &mut *self.bytes, &mut *self.above] {
            part.fill(PAINT);
        }
    }

    /// Returns the number of bytes up to the last one that was written since painting.
    pub fn used(&self) -> u32 {
        self.bytes.iter().rposition(|&byte| byte != PAINT).map_or(0, |last| last as u32 + 1)
    }

    /// True if no canary byte around the arena was overwritten.
    pub fn canaries_whole(&self) -> bool {
        black_box([&*self.below, &*self.above]).iter().all(|canary| canary.iter().all(|&byte| byte == PAINT))
    }
}
