//! A heap for firmware that builds and records models on the device. It tracks its peak usage.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};
use embedded_alloc::LlffHeap;

/// A first-fit heap. Make it the firmware's `#[global_allocator]`.
pub struct Heap {
    heap: LlffHeap,
    peak: AtomicUsize,
}

impl Heap {
    /// Creates a heap without memory.
    pub const fn new() -> Heap {
        Heap { heap: LlffHeap::empty(), peak: AtomicUsize::new(0) }
    }

    /// Hands memory to the heap permanently. Call it only once.
    pub fn give(&self, memory: &'static mut [u8]) {
        // SAFETY: the slice is exclusive, and lives as long as the firmware runs.
        unsafe { self.heap.init(memory.as_mut_ptr() as usize, memory.len()) }
    }

    /// Returns the largest number of bytes that were in use at the same time.
    pub fn peak(&self) -> u32 {
        self.peak.load(Ordering::Relaxed) as u32
    }
}

impl Default for Heap {
    fn default() -> Heap {
        Heap::new()
    }
}

// SAFETY: both methods forward to the heap, which is a sound allocator.
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
