//! The global allocator of the suite, which counts allocations for tests.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// An allocator that counts the allocations of each thread, the bytes that the thread holds, and its largest allocation.
struct Counting;

thread_local! {
    /// Number of allocations of this thread.
    pub static COUNT: Cell<usize> = const { Cell::new(0) };
    /// Size of this thread's largest allocation, in bytes.
    pub static LARGEST: Cell<usize> = const { Cell::new(0) };
    /// Bytes that this thread holds. Negative if it frees memory that another thread allocated.
    pub static HELD: Cell<isize> = const { Cell::new(0) };
}

fn hold(bytes: isize) {
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

fn count(bytes: usize) {
    // A thread that ends no longer has counters.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: all methods forward to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        hold(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        hold(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        hold(size as isize - layout.size() as isize);
        unsafe { System.realloc(memory, layout, size) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(-(layout.size() as isize));
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
