//! A heap, for firmware that builds and records on the device itself; it knows the most that was in use.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};
use embedded_alloc::LlffHeap;

/// A first-fit heap. Make it the firmware's `#[global_allocator]`.
pub struct Heap {
    heap: LlffHeap,
    peak: AtomicUsize,
}

impl Heap {
    /// A heap that has no memory yet.
    pub const fn new() -> Heap {
        Heap { heap: LlffHeap::empty(), peak: AtomicUsize::new(0) }
    }

    /// Gives the heap its memory, for good. Call it once.
    pub fn give(&self, memory: &'static mut [u8]) {
        // SAFETY: the slice is nobody else's, for as long as the firmware runs.
        unsafe { self.heap.init(memory.as_mut_ptr() as usize, memory.len()) }
    }

    /// The most bytes that were in use at once.
    pub fn peak(&self) -> u32 {
        self.peak.load(Ordering::Relaxed) as u32
    }
}

impl Default for Heap {
    fn default() -> Heap {
        Heap::new()
    }
}

// SAFETY: both go to the heap, which is a sound allocator.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        let allocated = unsafe { self.heap.alloc(layout) };
        self.peak.fetch_max(self.heap.used(), Ordering::Relaxed);
        allocated
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.heap.dealloc(pointer, layout) }
    }
}
