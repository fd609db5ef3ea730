//! Temporary memory of kernels. Each thread keeps it for the next use.

use bytemuck::{Pod, Zeroable};
use gradlet_core::tensor::Element;
use std::cell::RefCell;

/// A cache line. A vector at the start of one does not cross into another.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

thread_local! {
    /// Memory of this thread that no kernel uses at the moment.
    static SLABS: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with `length` elements of arbitrary content.
pub(super) fn with<T: Element, R>(length: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
    let mut slab = SLABS.with_borrow_mut(Vec::pop).unwrap_or_default();
    let lines = (length * size_of::<T>()).div_ceil(size_of::<Line>());
    if slab.len() < lines {
        slab.resize(lines, Line::zeroed());
    }
    let elements: &mut [T] = bytemuck::cast_slice_mut(&mut slab);
    let result = work(&mut elements[..length]);
    SLABS.with_borrow_mut(|slabs| slabs.push(slab));
    result
}
