//! Sums over replicas without copies: each replica lends its part and the place of its sum to the others.
//!
//! For the gradients of a CNN with 3.3 million parameters, copies of the parts took a seventh of a training step.

// The replicas read and write each other's memory, which the borrow checker cannot follow: see `Loan::add`.
#![allow(unsafe_code)]

use super::sum::{Number, add, with_number};
use gradlet_core::{DType, Error, Result};
use std::ops::Range;

/// Memory that a replica lends for the time of a sum.
pub(super) struct Loan {
    part: *const u8,
    sum: *mut u8,
    bytes: usize,
}

// SAFETY: only `Loan::add` uses the memory, and its contract lets threads share it.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

/// Number of elements that are added before the next ones, so that they stay in the cache.
const BLOCK: usize = 4096;

impl Loan {
    /// Lends `part`, and `sum` with the same number of bytes.
    pub(super) fn new(part: &[u8], sum: &mut [u8]) -> Loan {
        Loan { part: part.as_ptr(), sum: sum.as_mut_ptr(), bytes: part.len().min(sum.len()) }
    }

    /// Adds the parts of all replicas for the elements of replica `rank`, and writes the sum for all of them. `finish` returns when all
    /// replicas have done so.
    ///
    /// # Safety
    ///
    /// Each replica calls this once with the same loans and with its own rank. `finish` returns in none of them before all have called it.
    /// The borrows from which the loans were made last until it returns.
    pub(super) unsafe fn add(loans: &[Loan], rank: usize, dtype: DType, finish: impl FnOnce()) -> Result<()> {
        // SAFETY: the caller's contract.
        let done = with_number!(dtype, T => unsafe { Loan::share::<T>(loans, rank) });
        // Even after an error, no replica may end its borrows before all have finished.
        finish();
        done
    }

    /// Writes the sums of the elements of replica `rank`.
    ///
    /// # Safety
    ///
    /// The memory of the loans is valid. No other thread uses these elements of the sums, and none writes the parts.
    unsafe fn share<T: Number>(loans: &[Loan], rank: usize) -> Result<()> {
        let bytes = loans.iter().map(|loan| loan.bytes).min().unwrap_or(0);
        let aligned = |loan: &Loan| loan.part.cast::<T>().is_aligned() && loan.sum.cast::<T>().is_aligned();
        if bytes > 0 && !loans.iter().all(aligned) {
            return Err(Error::Internal);
        }
        let own = range(bytes / size_of::<T>(), loans.len(), rank);
        for start in own.clone().step_by(BLOCK) {
            let block = start..(start + BLOCK).min(own.end);
            // SAFETY: the caller's contract. `block` is inside the memory, which is aligned for `T`. The sums are distinct buffers.
            let (parts, mut sums): (Vec<&[T]>, Vec<&mut [T]>) = unsafe {
                let part = |loan: &Loan| std::slice::from_raw_parts(loan.part.cast::<T>().add(block.start), block.len());
                let sum = |loan: &Loan| std::slice::from_raw_parts_mut(loan.sum.cast::<T>().add(block.start), block.len());
                loans.iter().map(|loan| (part(loan), sum(loan))).unzip()
            };
            let Some((sum, copies)) = sums.split_first_mut() else { return Ok(()) };
            add(&parts, sum);
            copies.iter_mut().for_each(|copy| copy.copy_from_slice(sum));
        }
        Ok(())
    }
}

/// Returns the share of replica `rank` in `elements` elements. Shares begin at cache lines.
fn range(elements: usize, replicas: usize, rank: usize) -> Range<usize> {
    let share = elements.div_ceil(replicas.max(1)).next_multiple_of(64);
    (rank * share).min(elements)..((rank + 1) * share).min(elements)
}
