//! The budget of a slice of a save or a restore.

use crate::base::op::Slice;

/// A number of instructions of a Cortex-M4.
pub(crate) trait Budget {
    /// True if the budget is never spent. All work is then done in one call.
    const WHOLE: bool;

    /// Returns the end of the flash to erase between `from` and `end`. A slice erases one block, as its last work.
    fn erase(&mut self, from: u32, end: u32, block: u32) -> u32;

    fn is_spent(&self) -> bool;

    /// Takes `cost` instructions from the budget.
    fn spend(&mut self, cost: u32);

    /// Returns how many of `most` bytes it covers at `cost` instructions each, but at least one, and takes their cost from the budget.
    fn bytes(&mut self, most: usize, cost: u32) -> usize;

    /// Returns the slice of a kernel that begins at row `first`.
    fn slice(&self, first: u32) -> Slice;

    /// Takes what the kernel has spent.
    fn leave(&mut self, slice: &Slice);
}

/// The budget of a whole save or restore. Without the code for slices, a firmware that never slices is smaller.
pub(crate) struct Whole;

impl Budget for Whole {
    const WHOLE: bool = true;

    fn erase(&mut self, _: u32, end: u32, _: u32) -> u32 {
        end
    }

    fn is_spent(&self) -> bool {
        false
    }

    fn spend(&mut self, _: u32) {}

    fn bytes(&mut self, most: usize, _: u32) -> usize {
        most
    }

    fn slice(&self, _: u32) -> Slice {
        Slice::all()
    }

    fn leave(&mut self, _: &Slice) {}
}

impl Budget for u32 {
    const WHOLE: bool = false;

    fn erase(&mut self, from: u32, _: u32, block: u32) -> u32 {
        *self = 0;
        from + block
    }

    fn is_spent(&self) -> bool {
        *self == 0
    }

    fn spend(&mut self, cost: u32) {
        *self = self.saturating_sub(cost);
    }

    fn bytes(&mut self, most: usize, cost: u32) -> usize {
        let bytes = most.min((*self / cost).max(1) as usize);
        self.spend(bytes as u32 * cost);
        bytes
    }

    fn slice(&self, first: u32) -> Slice {
        Slice { first, ..Slice::of(*self) }
    }

    fn leave(&mut self, slice: &Slice) {
        *self = slice.budget;
    }
}
