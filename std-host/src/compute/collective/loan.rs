//! Sums over replicas without copies: each replica lends its part and the place of its sum to the others.
//!
//! For the gradients of a CNN with 3.3 million parameters, copies of the parts took a seventh of a training step.

// The replicas read and write each other's memory, which the borrow checker cannot follow: see `Loan::add`.
#![allow(unsafe_code)]

use gradlet_core::{DType, Error, Result};
use std::ops::Range;

/// Memory that a replica lends for the time of a sum.
pub(super) struct Loan {
    part: *const u8,
    sum: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is used only in `Loan::add`, whose contract lets threads share it.
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
    /// All replicas call this with the same loans, each with its own rank, before the borrows end from which the loans were made.
    pub(super) fn add(loans: &[Loan], rank: usize, dtype: DType, finish: impl FnOnce()) -> Result<()> {
        let done = match dtype {
            DType::F32 => Loan::share::<f32>(loans, rank, |a, b| a + b),
            DType::F64 => Loan::share::<f64>(loans, rank, |a, b| a + b),
            DType::I32 => Loan::share::<i32>(loans, rank, i32::wrapping_add),
            DType::I64 => Loan::share::<i64>(loans, rank, i64::wrapping_add),
            _ => Err(Error::message(format!("replicas cannot add tensors of {dtype}: cast them to f32"))),
        };
        // Even after an error, no replica may end its borrows before all have finished.
        finish();
        done
    }

    fn share<T: bytemuck::Pod>(loans: &[Loan], rank: usize, add: impl Fn(T, T) -> T) -> Result<()> {
        let bytes = loans.iter().map(|loan| loan.bytes).min().unwrap_or(0);
        if bytes == 0 {
            return Ok(());
        }
        let aligned = |loan: &Loan| loan.part.cast::<T>().is_aligned() && loan.sum.cast::<T>().is_aligned();
        if !loans.iter().all(aligned) {
            return Err(Error::Internal);
        }
        let own = range(bytes / size_of::<T>(), loans.len(), rank);
        for start in own.clone().step_by(BLOCK) {
            let block = start..(start + BLOCK).min(own.end);
            // SAFETY: the loans last until `finish` has returned in every replica. `block` is inside the memory, which is aligned for
            // `T`. Only this replica writes these elements of the sums, nobody reads them meanwhile, and parts are never written.
            let (parts, sums): (Vec<&[T]>, Vec<&mut [T]>) = unsafe {
                let part = |loan: &Loan| std::slice::from_raw_parts(loan.part.cast::<T>().add(block.start), block.len());
                let sum = |loan: &Loan| std::slice::from_raw_parts_mut(loan.sum.cast::<T>().add(block.start), block.len());
                loans.iter().map(|loan| (part(loan), sum(loan))).unzip()
            };
            add_block(&parts, sums, &add);
        }
        Ok(())
    }
}

/// Adds the parts in their order, and writes the sum to all of `sums`.
fn add_block<T: Copy>(parts: &[&[T]], mut sums: Vec<&mut [T]>, add: &impl Fn(T, T) -> T) {
    let (Some((first, others)), Some((sum, copies))) = (parts.split_first(), sums.split_first_mut()) else { return };
    match others {
        [second] => sum.iter_mut().zip(*first).zip(*second).for_each(|((sum, &a), &b)| *sum = add(a, b)),
        others => {
            sum.copy_from_slice(first);
            for other in others {
                sum.iter_mut().zip(*other).for_each(|(sum, &part)| *sum = add(*sum, part));
            }
        }
    }
    copies.iter_mut().for_each(|copy| copy.copy_from_slice(sum));
}

/// Returns the share of replica `rank` in `elements` elements. Shares begin at cache lines.
fn range(elements: usize, replicas: usize, rank: usize) -> Range<usize> {
    let share = elements.div_ceil(replicas.max(1)).next_multiple_of(64);
    (rank * share).min(elements)..((rank + 1) * share).min(elements)
}
